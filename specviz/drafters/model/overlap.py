"""Draft a chain and measure the overlap of draft and target distributions, sum of min(p, q)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...core import Budget, DraftSteps, Outcome, State, Step, select_rows
from .chain import DraftChain


class OverlapChain(DraftChain):
    """Drafter of a chain with a draft model that records at each verified position the overlap sum min(p,
    q) of target and draft distribution: the acceptance probability (Leviathan et al. 2211.17192). At
    temperature 0 the distributions at temperature 1 are compared."""

    piece = 10**6  # the stop function only records

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        self.draft_probs: list[Tensor] = []  # draft distribution at each position

        def stop(step: Step) -> bool:
            self.draft_probs.append(step.probs)
            return budget.stop(step)

        return (yield from super().steps(state, replace(budget, stop=stop)))

    def observe(self, state: State, outcome: Outcome) -> None:
        line = self.overlaps(state, outcome)
        if line:
            state.note("overlap", line=line)

    def overlaps(self, state: State, outcome: Outcome) -> list[float]:
        """Return the overlap, sum of min(p, q), at each verified position of a round."""
        return self.compute_overlaps(
            select_rows(outcome.scores.logits, verified_rows(outcome)), self.draft_probs, state
        )

    def compute_overlaps(self, logits: Tensor, drafted: list[Tensor], state: State) -> list[float]:
        """Return the overlaps, sums of min(p, q), of n target distributions, given as logits [n, vocab],
        with n draft distributions [vocab]."""
        sums = [p.minimum(q.to(p)).sum() for p, q in zip(self.comparison_probs(logits, state), drafted)]
        return [round(each, 4) for each in torch.stack(sums).tolist()] if sums else []

    @staticmethod
    def comparison_probs(logits: Tensor, state: State) -> Tensor:
        """Return the distributions [n, vocab] to compare, given the target's logits: at the run's
        temperature; at temperature 1 for a run at temperature 0."""
        return logits.softmax(-1) if state.sampling.greedy else state.sampling.probs(logits)


def verified_rows(outcome: Outcome) -> list[int]:
    """Return the rows of a chain's scores that verified a draft token: those of the accepted path, and of
    the rejected token."""
    return [row for row in outcome.kept if row < len(outcome.tree)]
