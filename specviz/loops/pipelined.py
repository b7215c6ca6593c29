"""PEARL: the draft model writes on while the target still checks (Liu et al. 2408.11850).

Each round the target scores what is pending, and at the same time the draft model writes gamma more tokens, as if all of it were
to pass. The last row scored judges the first of the new tokens, too. When everything passes, the round ends with that token, the
other new ones are pending, and nobody has waited (post-verify); after a refusal what was written ahead is thrown away, nothing is
pending, and the next round judges a first token while the rest of its chunk is being written (pre-verify). There is never a
bonus token: the place where it would stand is drafted already.

The law is that of token rejection. What is written ahead is drawn from the draft's law after the pending tokens, whether or not
they pass; if they do, it is the draft that an ordinary round would have drawn there, and if not, it is not looked at. (Given one
pending draft the next token does not follow the target's law, just as it does not in the middle of an ordinary round.)
"""
from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Iterator

from ..core import BrokenModel, DraftTree, Outcome, Parts, State, Target, TreeBuilder, has_nan
from ..trace.events import Event, tell
from ..core.round import BROKEN, learn
from .beside import Beside
from .speculate import opening, told


class Pipelined:
    """The loop of one method. Its drafter must be restartable and propose chains, its verifier be ``Ahead``.

    parallel: really at the same time, where there is room for two (see Beside). Otherwise one after the other: the run's own times
    stay what they were, and the timeline that is noted shows where both would have begun together, computed from those times.
    """

    def __init__(self, parallel: bool = True):
        self.parallel, self.beside, self.pending, self.saved = parallel, None, DraftTree(), 0.0

    def __call__(self, parts: Parts, target: Target, state: State) -> Iterator[Event]:
        if not parts.drafter.restartable:
            raise TypeError(f"{type(parts.drafter).__name__} follows verified text only, so it cannot draft while the target reads")
        self.pending, self.saved = DraftTree(), 0.0
        device = (yield from opening(parts, target, state)).logits.device
        self.beside = Beside(device) if self.parallel and Beside.fits(device) else None
        yield from told(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: Target, state: State) -> Iterator[Iterable[Event]]:
        try:
            while not state.done:
                yield tell(self.round(parts, target, state), state, self.spans)
        finally:
            if self.beside:
                self.beside.__exit__()
            self.beside = None

    def round(self, parts: Parts, target: Target, state: State) -> Outcome:
        """One round on a target synced to state.tokens; it is synced again when the round ends."""
        now = state.clock.now
        t0 = now()
        budget, pending = parts.policy.plan(state), joined((self.pending, state.left))
        last = len(pending) == state.left or bool(pending) and pending.tokens[-1] in state.stop
        length = 0 if last else min(budget.gamma, state.left - len(pending))
        read = joined((pending, len(pending) - last))  # nobody asks what follows the last token
        t1 = now()
        ahead = state.fork(pending.tokens)
        fresh, scores = self._both(parts, target, ahead, replace(budget, gamma=length, width=1), read)
        t2 = now()
        state.notes += ahead.notes
        if has_nan(scores.logits):
            raise BrokenModel(BROKEN)
        fresh = _behind_end(fresh, state)
        judged = joined((pending, len(pending)), (fresh, 1))
        parts.verifier.check(judged)
        verdict = parts.verifier.verify(judged, scores, state)
        t3 = now()
        target.commit(verdict)
        t4 = now()
        committed = tuple(judged.tokens[i] for i in verdict.path) + (verdict.token,)
        state.tokens += committed
        state.round += 1
        passed = verdict.kind == "accepted" and not state.done
        self.pending = joined((fresh, len(fresh)), first=1) if passed else DraftTree()
        tree = judged if passed else joined((pending, len(pending)), (fresh, len(fresh)))
        (d0, d1), (v0, v1) = self.spans
        seconds = dict(plan=t1 - t0, draft=t2 - t1 - (v1 - v0), verify=v1 - v0, judge=t3 - t2, commit=t4 - t3)
        outcome = Outcome(tree, scores, verdict, budget, committed, (0,) + tuple(i + 1 for i in verdict.path), seconds, t0)
        self._note(state, len(pending), len(fresh))
        learn(parts, state, outcome, len(read), len(fresh), v1 - v0, d1 - d0)
        seconds["observe"] = now() - t4
        return outcome

    def _both(self, parts: Parts, target: Target, ahead: State, budget, read: DraftTree):
        """The chain written ahead, and the scores of what is read; ``spans`` says when each was at work."""
        now, spans = ahead.clock.now, {}

        def timed(name, work):
            began = now()
            try:
                return work()
            finally:
                spans[name] = began, now()

        def draft():
            return timed("draft", lambda: parts.drafter.propose(ahead, budget) if budget.gamma > 0 else DraftTree())

        def score():
            return timed("verify", lambda: target.score(read))

        fresh, scores = self.beside.both(draft, score) if self.beside else (draft(), score())
        self.spans = spans["draft"], spans["verify"]
        return fresh, scores

    def _note(self, state: State, waiting: int, written: int) -> None:
        """The two rows of the timeline. ``clock``: "measured", or "simulated" where one model had to wait for the other."""
        (d0, d1), (v0, v1) = self.spans
        if not self.beside:
            d0, d1, v0, v1 = d0 - self.saved, d1 - self.saved, d0 - self.saved, d0 - self.saved + (v1 - v0)
            self.saved += min(d1 - d0, v1 - v0)
        state.note("timeline", mode="post-verify" if waiting else "pre-verify", clock="measured" if self.beside else "simulated",
                   draft=[round(d0, 7), round(d1, 7)], verify=[round(v0, 7), round(v1, 7)], waiting=waiting, written=written,
                   kept=len(self.pending))


def joined(*pieces: tuple[DraftTree, int], first: int = 0) -> DraftTree:
    """One chain of the first so many nodes of each chain; ``first``: of the first one, begin at this node."""
    build = TreeBuilder()
    for tree, count in pieces:
        for i in range(first, min(count, len(tree))):
            probs = tree.draft_probs(i)
            draw = -1 if probs is None else build.begin(probs, tree.label(i))
            build.add(tree.tokens[i], len(build) - 1, draw, origin=tree.origin[i] if i < len(tree.origin) else None)
        first = 0
    return build.tree()


def _behind_end(chain: DraftTree, state: State) -> DraftTree:
    """The chain up to its first end token, which is kept: a cut that is lawful, as the token it looked at is judged."""
    ends = [i + 1 for i, token in enumerate(chain.tokens) if token in state.stop]
    return joined((chain, ends[0])) if ends else chain
