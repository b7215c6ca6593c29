"""Drafting for predicted outcomes: while the target verifies a draft, the draft model predicts the outcome
and drafts what follows it (SSD and its algorithm Saguaro, 2603.03251).

An outcome is the number of accepted tokens and the token after them. The draft model's own probabilities
rank the outcomes, and for the most probable ones it drafts the next chain. If the real outcome is one of
them, the next round starts with its draft ready; otherwise it drafts as usual. PEARL (pipelined.py)
prepares for one outcome only: that everything is accepted.

The output distribution is that of the verifier: a prepared chain is sampled from the draft distribution
after its outcome, independently of the verification, and is used only after that outcome, where an ordinary
round would sample from the same distribution.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any

from ..core import Budget, Clock, DraftTree, Outcome, Parts, Scores, State, Target
from ..core.round import Proposal, clip, conclude, within
from ..trace.events import Event, round_events
from .draft_thread import DraftThread
from .speculate import emit_rounds, start_run

PER_POSITION = 4  # tokens considered at each position


class PredictedOutcomes:
    """Decoding loop of SSD. The drafter must draft chains, be restartable, and have a draft model as
    ``model``.

    outcomes: number of outcomes per round for which chains are drafted; parallel: run both models in
    parallel if possible (DraftThread), else one after the other. prepared: {output tokens at the end of an
    outcome: chain that follows it}.
    """

    def __init__(self, outcomes: int = 2, parallel: bool = True):
        self.outcomes, self.parallel = outcomes, parallel
        self.prepared: dict[tuple[int, ...], DraftTree] = {}
        self.draft_thread: DraftThread | None = None

    def __call__(self, parts: Parts, target: Target, state: State) -> Generator[Event]:
        if not parts.drafter.restartable:
            raise TypeError(
                f"{type(parts.drafter).__name__} follows verified text only, so it cannot draft during verification"
            )
        self.prepared = {}
        device = (yield from start_run(parts, target, state)).logits.device
        self.draft_thread = DraftThread(device) if self.parallel and DraftThread.fits(device) else None
        yield from emit_rounds(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: Target, state: State) -> Generator[Iterable[Event]]:
        try:
            while not state.done:
                yield round_events(self.round(parts, target, state), state)
        finally:
            if self.draft_thread:
                self.draft_thread.__exit__()
            self.draft_thread = None

    def round(self, parts: Parts, target: Target, state: State) -> Outcome:
        """Run one round; the target must be synced to state.tokens, and is again when the round ends."""
        now = state.clock.now
        t0 = now()
        budget = within(parts.policy.plan(state), target, state)
        t1 = now()
        ready = self.prepared.pop(tuple(state.tokens[state.start :]), None)
        tree = clip(parts.drafter.propose(state, budget) if ready is None else ready, state)
        waiting, self.prepared = len(self.prepared), {}
        t2 = now()
        scores, verify = self._both(parts, target, state, budget, tree)
        proposal = Proposal(budget, tree, t0, t1 - t0, now() - t1 - verify)
        outcome = conclude(parts, target, state, proposal, scores, verify)
        state.note(
            "outcomes",
            ready=ready is not None,
            dropped=waiting,
            prepared=len(self.prepared),
            drafting=round(t2 - t1, 7),
        )
        return outcome

    def _both(
        self, parts: Parts, target: Target, state: State, budget: Budget, tree: DraftTree
    ) -> tuple[Scores, float]:
        """Score the tree and prepare chains for its outcomes; return the scores and the seconds of the
        target's pass."""
        now, seconds = state.clock.now, [0.0]

        def score() -> Scores:
            began = now()
            try:
                return target.score(tree)
            finally:
                seconds[0] = now() - began

        def draft() -> dict[tuple[int, ...], DraftTree]:
            clock = state.clock.beside() if self.draft_thread else state.clock
            return self.prepare(parts.drafter, state, budget, tree, clock)

        if self.draft_thread:
            self.prepared, scores = self.draft_thread.run_both(draft, score)
        else:
            scores, self.prepared = score(), draft()
        return scores, seconds[0]

    def prepare(
        self, drafter: Any, state: State, budget: Budget, tree: DraftTree, clock: Clock
    ) -> dict[tuple[int, ...], DraftTree]:
        """Draft chains for the most probable outcomes of a draft ``tree``. Return {output tokens at the end
        of that outcome: chain}. clock: of the thread that drafts."""
        chains: dict[tuple[int, ...], DraftTree] = {}
        if not self.outcomes or budget.gamma < 1:
            return chains
        for tokens in likely_outcomes(drafter.model, state, tree, self.outcomes):
            ahead = state.fork(tokens, limit=state.limit)
            ahead.clock = clock
            if ahead.left < 2 or any(token in state.stop for token in tokens):
                continue
            length = min(budget.gamma, ahead.left - 1)
            chains[tuple(ahead.tokens[state.start :])] = drafter.propose(ahead, replace(budget, gamma=length))
        return chains


def likely_outcomes(model: Target, state: State, tree: DraftTree, count: int) -> list[tuple[int, ...]]:
    """Return the ``count`` most probable outcomes of a draft, by the draft model's probabilities: accepted
    tokens and the token after them."""
    model.sync(state.tokens)
    logits = model.score(tree).logits
    probs = (logits.float() / (state.sampling.temperature or 1.0)).softmax(-1)
    best = probs.topk(min(PER_POSITION, probs.shape[-1]), -1)
    found: list[tuple[float, tuple[int, ...]]] = []
    reached = 1.0
    for at in range(len(tree) + 1):
        drafted = int(tree.tokens[at]) if at < len(tree) else None
        for value, token in zip(best.values[at].tolist(), best.indices[at].tolist()):
            if token != drafted:
                found.append((reached * value, (*map(int, tree.tokens[:at]), token)))
        if drafted is not None:
            reached *= float(probs[at, drafted])
    found.sort(key=lambda pair: -pair[0])
    return [tokens for _, tokens in found[:count]]
