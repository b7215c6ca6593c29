"""Draft a chain and measure the overlap of draft and target distributions, sum of min(p, q)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...core import Budget, DraftSteps, Outcome, State, select_rows
from .chain import DraftChain


class OverlapChain(DraftChain):
    """Drafter of a chain with a draft model that records at each verified position the overlap sum min(p,
    q) of target and draft distribution: the acceptance probability (Leviathan et al. 2211.17192). At
    temperature 0 the distributions at temperature 1 are compared. The engine's clock is paused meanwhile,
    since the overlaps are only shown."""

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        self.kept: list[Callable[[], Tensor]] = []  # the draft model's logits at each position, in parts
        return (yield from super().steps(state, budget))

    def keep(self, rows: Callable[[], Tensor]) -> None:
        self.kept.append(rows)

    def observe(self, state: State, outcome: Outcome) -> None:
        with state.clock.paused():
            line = self.overlaps(state, outcome)
            if line:
                state.note("overlap", line=line)

    def overlaps(self, state: State, outcome: Outcome) -> list[float]:
        """Return the overlap, sum of min(p, q), at each verified position of a round."""
        places = verified_rows(outcome)
        if not places:
            return []
        drafted = torch.cat([rows() for rows in self.kept])[: len(places)]
        logits = select_rows(outcome.scores.logits, places)
        return self.compute_overlaps(logits, self.comparison_probs(drafted, state), state)

    def compute_overlaps(self, logits: Tensor, drafted: Tensor, state: State) -> list[float]:
        """Return the overlaps, sums of min(p, q), of n target distributions, given as logits [n, vocab],
        with n draft distributions [n, vocab]."""
        verified = self.comparison_probs(logits, state)
        sums = verified.minimum(drafted.to(verified)).sum(-1)
        return [round(each, 4) for each in sums.tolist()]

    @staticmethod
    def comparison_probs(logits: Tensor, state: State) -> Tensor:
        """Return the distributions [n, vocab] to compare, given logits: at the run's temperature; at
        temperature 1 for a run at temperature 0."""
        return logits.softmax(-1) if state.sampling.greedy else state.sampling.probs(logits)


def verified_rows(outcome: Outcome) -> list[int]:
    """Return the rows of a chain's scores that verified a draft token: those of the accepted path, and of
    the rejected token."""
    return [row for row in outcome.kept if row < len(outcome.tree)]
