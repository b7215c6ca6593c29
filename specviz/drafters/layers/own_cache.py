"""Self-speculation with all layers of the target over a reduced KV cache."""

from __future__ import annotations

from typing import Any

from ...core import Budget, DraftSteps, State
from ..model.chain import DraftChain


class OwnCache(DraftChain):
    """Drafter of a chain: all layers of the target, over a part of its KV cache or a quantised copy of it.
    view: the target with that cache (targets/cache_selection.py); bits: bits per cached value, 0 if it is
    not quantised."""

    restartable = False  # the view uses the target's own KV cache

    def __init__(self, view: Any, bits: int = 0):
        super().__init__(view)
        self.view, self.bits = view, bits

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        tree = yield from super().steps(state, budget)
        if len(tree):
            state.note("own_cache", kept=self.view.kept, of=len(state.tokens) - 1, bits=self.bits)
        return tree
