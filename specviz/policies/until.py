"""Draft until a token, or the law it was drawn from, says stop. The token it looked at is kept, so the law stays what it is."""
from __future__ import annotations

from typing import Callable

from ..core import Budget, Policy, State, Step


class Until(Policy):
    """most: longest draft; stop: asked after each token."""

    def __init__(self, most: int, stop: Callable[[Step], bool]):
        self._budget = Budget(most, stop=stop)

    def plan(self, state: State) -> Budget:
        return self._budget
