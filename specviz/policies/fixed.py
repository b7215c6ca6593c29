"""Use the same budget in every round."""

from __future__ import annotations

from ..core import Budget, Policy, State


class Fixed(Policy):
    """A policy with a constant budget. gamma: maximum depth of the draft; width: maximum number of children
    per node; nodes: maximum number of nodes."""

    def __init__(self, gamma: int = 4, width: int = 1, nodes: int = 64):
        self._budget = Budget(gamma, width, nodes)

    def plan(self, state: State) -> Budget:
        return self._budget
