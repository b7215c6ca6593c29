"""Draft a chain and measure the overlap of draft and target distributions, sum of min(p, q)."""
from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...core import Budget, DraftSteps, Outcome, State, Step, select_rows
from .chain import DraftChain


class OverlapChain(DraftChain):
    """Draft a chain, and record at each verified position the overlap of draft and target distribution, which is the
    acceptance probability (Leviathan et al. 2211.17192). For a run at temperature 0 the distributions at temperature 1
    are compared."""

    piece = 10**6  # the stop function only records

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        self.believed: list[Tensor] = []  # draft distribution at each position

        def stop(step: Step) -> bool:
            self.believed.append(step.probs)
            return budget.stop(step)

        return (yield from super().steps(state, replace(budget, stop=stop)))

    def observe(self, state: State, outcome: Outcome) -> None:
        line = self.overlaps(state, outcome)
        if line:
            state.note("overlap", line=line)

    def overlaps(self, state: State, outcome: Outcome) -> list[float]:
        """Return sum of min(p, q) at each verified position."""
        return self.common(select_rows(outcome.scores.logits, verified_rows(outcome)), self.believed, state)

    def common(self, logits: Tensor, drafted: list[Tensor], state: State) -> list[float]:
        """Return the overlaps of the target's logits [n, vocab] with the draft's distributions."""
        sums = [p.minimum(q.to(p)).sum() for p, q in zip(self.comparison_probs(logits, state), drafted)]
        return [round(each, 4) for each in torch.stack(sums).tolist()] if sums else []

    @staticmethod
    def comparison_probs(logits: Tensor, state: State) -> Tensor:
        """Return the distribution to compare: that of the run, at temperature 0 that of temperature 1."""
        return logits.softmax(-1) if state.sampling.greedy else state.sampling.probs(logits)


def verified_rows(outcome: Outcome) -> list[int]:
    """Return the rows of the scores, root first, at which a draft token was verified."""
    return [row for row in outcome.kept if row < len(outcome.tree)]
