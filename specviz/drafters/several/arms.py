"""Several drafters, of which the policy says beforehand who proposes: whole configurations as the arms of a bandit (Hou et al.
2505.15141). The choice sees no token of the round, so what is proposed keeps its laws."""
from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, State
from .fused import Several


class Armed(Several):
    """The drafter whose number is the budget's arm; one drafter may stand for several arms."""

    def __init__(self, *drafters: Drafter):
        super().__init__(*dict.fromkeys(drafters))
        self.arms = drafters

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.arms[budget.arm].propose(state, budget)
