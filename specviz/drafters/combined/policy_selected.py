"""Let the policy select the drafter of a round: whole configurations as candidates of a bandit (Hou et al. 2505.15141). The choice does
not depend on the round's tokens, so the draft distributions stay valid."""
from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, State
from .fusion import MultiDrafter


class PolicySelector(MultiDrafter):
    """Use the drafter at index budget.candidate; one drafter may appear several times."""

    def __init__(self, *drafters: Drafter):
        super().__init__(*dict.fromkeys(drafters))
        self.candidates = drafters

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.candidates[budget.candidate].propose(state, budget)
