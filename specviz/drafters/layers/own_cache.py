"""The target drafts for itself, with all of its layers, over less of what it remembers."""
from __future__ import annotations

from typing import Any

from ...core import Budget, State, Steps
from ..model.chain import DraftChain


class OwnCache(DraftChain):
    """A chain from a view of the target over its own keys and values (targets/own_cache.py). bits: of a kept number."""

    restartable = False  # the view reads the target's own cache

    def __init__(self, view: Any, bits: int = 0):
        super().__init__(view)
        self.bits = bits

    def steps(self, state: State, budget: Budget) -> Steps:
        tree = yield from super().steps(state, budget)
        if len(tree):
            state.note("own_cache", kept=self.model.kept, of=len(state.tokens) - 1, bits=self.bits)
        return tree
