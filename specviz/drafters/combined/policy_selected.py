"""Let the policy select the drafter of a round: each drafter with its budget is a candidate of a bandit
(Hou et al. 2505.15141). The choice does not depend on the round's tokens, so the draft distributions stay
valid."""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, State
from .fusion import MultiDrafter


class PolicySelector(MultiDrafter):
    """Drafter that runs the one of several drafters with index budget.candidate, which the policy chose.
    The same drafter may be listed several times, for candidates that differ in their budget."""

    def __init__(self, *drafters: Drafter):
        super().__init__(*dict.fromkeys(drafters))
        self.candidates = drafters

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.candidates[budget.candidate].propose(state, budget)
