"""Pipelined drafting: the draft model continues while the target verifies (PEARL, Liu et al. 2408.11850).

In each round the target scores the pending tokens while the draft model drafts gamma more, assuming that
all pending tokens will be accepted. The last scored position also verifies the first of the new tokens. If
everything is accepted, the round ends with that token, the other new tokens are pending, and neither model
waited (post-verify). After a rejection the new tokens are dropped and nothing is pending; the next round
verifies its first token while the rest of its chunk is drafted (pre-verify). There is no bonus token,
because its position is already drafted.

The output distribution is that of token rejection. The new tokens are sampled from the draft distribution
after the pending tokens. If these are accepted, an ordinary round would have sampled from the same
distribution; if not, the new tokens are not used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace

from ..core import BrokenModel, DraftTree, Outcome, Parts, State, Target, TreeBuilder, has_nan
from ..core.round import BROKEN, learn
from ..trace.events import Event, round_events
from .draft_thread import DraftThread
from .speculate import emit_rounds, start_run


class Pipelined:
    """Decoding loop of PEARL. The drafter must be restartable and draft chains, the verifier must be
    PearlVerification.

    parallel: run both models in parallel if possible (see DraftThread). Otherwise they run one after the
    other; measured times are kept, and the recorded timeline is simulated from them. pending: draft tokens
    that the next round verifies.
    """

    def __init__(self, parallel: bool = True):
        self.parallel = parallel
        self.draft_thread = None
        self.pending = DraftTree()
        self.saved = 0.0

    def __call__(self, parts: Parts, target: Target, state: State) -> Generator[Event]:
        if not parts.drafter.restartable:
            raise TypeError(
                f"{type(parts.drafter).__name__} follows verified text only, so it cannot draft during verification"
            )
        self.pending, self.saved = DraftTree(), 0.0
        device = (yield from start_run(parts, target, state)).logits.device
        self.draft_thread = DraftThread(device) if self.parallel and DraftThread.fits(device) else None
        yield from emit_rounds(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: Target, state: State) -> Generator[Iterable[Event]]:
        try:
            while not state.done:
                yield round_events(self.round(parts, target, state), state, self.spans)
        finally:
            if self.draft_thread:
                self.draft_thread.__exit__()
            self.draft_thread = None

    def round(self, parts: Parts, target: Target, state: State) -> Outcome:
        """Run one round; the target must be synced to state.tokens, and is again when the round ends."""
        now = state.clock.now
        t0 = now()
        budget, pending = parts.policy.plan(state), concatenate_chains((self.pending, state.left))
        last = len(pending) == state.left or bool(pending) and pending.tokens[-1] in state.stop
        length = 0 if last else min(budget.gamma, state.left - len(pending))
        read = concatenate_chains((pending, len(pending) - last))  # nothing follows the last token
        t1 = now()
        ahead = state.fork(pending.tokens)
        fresh, scores = self._both(parts, target, ahead, replace(budget, gamma=length, width=1), read)
        t2 = now()
        state.notes += ahead.notes
        if has_nan(scores.logits):
            raise BrokenModel(BROKEN, "model.not_numbers")
        scores = state.process_scores(read, scores)
        fresh = _cut_after_end(fresh, state)
        checked_tree = concatenate_chains((pending, len(pending)), (fresh, 1))
        parts.verifier.check(checked_tree)
        verdict = parts.verifier.verify(checked_tree, scores, state)
        t3 = now()
        target.commit(verdict)
        t4 = now()
        committed = tuple(checked_tree.tokens[i] for i in verdict.path) + (verdict.token,)
        state.tokens += committed
        state.round += 1
        passed = verdict.kind == "accepted" and not state.done
        self.pending = concatenate_chains((fresh, len(fresh)), first=1) if passed else DraftTree()
        tree = checked_tree if passed else concatenate_chains((pending, len(pending)), (fresh, len(fresh)))
        (d0, d1), (v0, v1) = self.spans
        seconds = dict(plan=t1 - t0, draft=t2 - t1 - (v1 - v0), verify=v1 - v0, judge=t3 - t2, commit=t4 - t3)
        outcome = Outcome(
            tree, scores, verdict, budget, committed, (0,) + tuple(i + 1 for i in verdict.path), seconds, t0
        )
        self._note(state, len(pending), len(fresh))
        learn(parts, state, outcome, len(read), len(fresh), v1 - v0, d1 - d0)
        seconds["observe"] = now() - t4
        return outcome

    def _both(self, parts: Parts, target: Target, ahead: State, budget, read: DraftTree):
        """Return the chain drafted ahead and the scores of the pending tokens; ``spans`` holds the begin
        and end of both."""
        clock, spans = ahead.clock, {}

        def timed(name, now, work):
            began = now()
            try:
                return work()
            finally:
                spans[name] = began, now()

        def draft():
            if self.draft_thread:
                ahead.clock = clock.beside()
            return timed(
                "draft",
                ahead.clock.now,
                lambda: parts.drafter.propose(ahead, budget) if budget.gamma > 0 else DraftTree(),
            )

        def score():
            return timed("verify", clock.now, lambda: target.score(read))

        fresh, scores = self.draft_thread.run_both(draft, score) if self.draft_thread else (draft(), score())
        # this thread's clock leaves out its own waiting, so that of the draft may be ahead of it
        latest = clock.now()
        began, ended = spans["draft"]
        self.spans = (min(began, latest), min(ended, latest)), spans["verify"]
        return fresh, scores

    def _note(self, state: State, waiting: int, written: int) -> None:
        """Record the two rows of the timeline. ``clock``: "measured", or "simulated" where the models ran
        one after the other."""
        (d0, d1), (v0, v1) = self.spans
        if not self.draft_thread:
            d0, d1, v0, v1 = d0 - self.saved, d1 - self.saved, d0 - self.saved, d0 - self.saved + (v1 - v0)
            self.saved += min(d1 - d0, v1 - v0)
        state.note(
            "timeline",
            mode="post-verify" if waiting else "pre-verify",
            clock="measured" if self.draft_thread else "simulated",
            draft=[round(d0, 7), round(d1, 7)],
            verify=[round(v0, 7), round(v1, 7)],
            waiting=waiting,
            written=written,
            kept=len(self.pending),
        )


def concatenate_chains(*pieces: tuple[DraftTree, int], first: int = 0) -> DraftTree:
    """Return one chain from prefixes of chains, given as (chain, number of nodes). first: index of the node
    in the first chain to start from."""
    build = TreeBuilder()
    for tree, count in pieces:
        for i in range(first, min(count, len(tree))):
            probs = tree.draft_probs(i)
            draw = -1 if probs is None else build.begin(probs, tree.label(i))
            build.add(
                tree.tokens[i], len(build) - 1, draw, origin=tree.origin[i] if i < len(tree.origin) else None
            )
        first = 0
    return build.tree()


def _cut_after_end(chain: DraftTree, state: State) -> DraftTree:
    """Cut the chain after its first end token. The cut is unbiased because the token it depends on is kept
    and verified."""
    ends = [i + 1 for i, token in enumerate(chain.tokens) if token in state.stop]
    return concatenate_chains((chain, ends[0])) if ends else chain
