"""A draft model's chain that tells how well the two distributions agree: what a draft is trained for, seen while it drafts."""
from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...core import Budget, Outcome, State, Step, Steps, select_rows
from .chain import DraftChain


class WatchedChain(DraftChain):
    """Notes, for each place that was judged, what both distributions have in common: the chance that the draft's token passes there
    (Leviathan et al. 2211.17192). At temperature 0 those at temperature 1 are compared."""

    piece = 10**6  # who only looks ends nothing

    def steps(self, state: State, budget: Budget) -> Steps:
        self.believed: list[Tensor] = []  # the draft's distribution at each place

        def stop(step: Step) -> bool:
            self.believed.append(step.probs)
            return budget.stop(step)

        return (yield from super().steps(state, replace(budget, stop=stop)))

    def observe(self, state: State, outcome: Outcome) -> None:
        line = self.overlaps(state, outcome)
        if line:
            state.note("overlap", line=line)

    def overlaps(self, state: State, outcome: Outcome) -> list[float]:
        """Sum of the smaller of both probabilities, at each judged place."""
        return self.common(select_rows(outcome.scores.logits, judged(outcome)), self.believed, state)

    def common(self, logits: Tensor, drafted: list[Tensor], state: State) -> list[float]:
        """The same of the target's logits [n, vocab] and the draft's distributions."""
        sums = [p.minimum(q.to(p)).sum() for p, q in zip(self.believes(logits, state), drafted)]
        return [round(each, 4) for each in torch.stack(sums).tolist()] if sums else []

    @staticmethod
    def believes(logits: Tensor, state: State) -> Tensor:
        """A model's distribution as it is compared: that of the run, at temperature 0 that of temperature 1."""
        return logits.softmax(-1) if state.sampling.greedy else state.sampling.probs(logits)


def judged(outcome: Outcome) -> list[int]:
    """Rows of the scores, from the root down, below which a token of the chain was held against the target."""
    return [row for row in outcome.kept if row < len(outcome.tree)]
