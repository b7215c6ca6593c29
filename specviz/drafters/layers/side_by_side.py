"""Drafting with layers that run side by side (EasySpec, Wu et al. 2502.02493)."""
from __future__ import annotations

from typing import Callable

from ...core import Budget, Drafter, DraftTree, Scores, State, Target


class LayerParallel(Drafter):
    """Drafts from a model whose middle layers run in groups of ``size``; grow(model) -> a drafter that uses it as its draft model. What
    it reads of the committed text is exact: that is fed in order at the start of each round, and gives the first law, too."""

    def __init__(self, model: Target, size: int, grow: Callable[[Target], Drafter]):
        self.model, self.size = model.fuzzy(size), size
        self.inner = grow(self.model)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = self.inner.propose(state, budget)
        middle = max(0, self.model.layers - 2)
        if len(tree):
            state.note("side_by_side", layers=self.model.layers, size=self.size, groups=-(-middle // self.size), exact=1,
                       steps=2 + -(-middle // self.size) if middle else self.model.layers)
        return tree
