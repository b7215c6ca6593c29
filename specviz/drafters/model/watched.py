"""A draft model's chain that tells how well the two distributions agree: what a draft is trained for, seen while it drafts."""
from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ...core import Budget, DraftTree, Outcome, State, Step
from .chain import DraftChain


class WatchedChain(DraftChain):
    """Notes, for each place that was judged, what both distributions have in common: the chance that the draft's token passes there
    (Leviathan et al. 2211.17192). At temperature 0 those at temperature 1 are compared."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        self.believed: list[Tensor] = []  # the draft's distribution at each place

        def stop(step: Step) -> bool:
            self.believed.append(step.probs)
            return budget.stop(step)

        return super().propose(state, replace(budget, stop=stop))

    def observe(self, state: State, outcome: Outcome) -> None:
        line = self.overlaps(state, outcome)
        if line:
            state.note("overlap", line=line)

    def overlaps(self, state: State, outcome: Outcome) -> list[float]:
        """Sum of the smaller of both probabilities, at each judged place."""
        rows = judged(outcome)
        logits = outcome.scores.logits[rows]
        laws = logits.softmax(-1) if state.sampling.greedy else state.sampling.probs(logits)
        return [round(float(p.minimum(q.to(p)).sum()), 4) for p, q in zip(laws, self.believed)]


def judged(outcome: Outcome) -> list[int]:
    """Rows of the scores, from the root down, below which a token of the chain was held against the target."""
    return [row for row in outcome.kept if row < len(outcome.tree)]
