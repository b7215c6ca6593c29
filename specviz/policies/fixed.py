"""The same budget every round."""
from __future__ import annotations

from ..core import Budget, Policy, State


class Fixed(Policy):
    """gamma: greatest depth; width: children a node; nodes: most nodes."""

    def __init__(self, gamma: int = 4, width: int = 1, nodes: int = 64):
        self._budget = Budget(gamma, width, nodes)

    def plan(self, state: State) -> Budget:
        return self._budget
