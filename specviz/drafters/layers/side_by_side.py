"""Drafting with layers that run side by side (EasySpec, Wu et al. 2502.02493)."""
from __future__ import annotations

from ...core import Budget, DraftTree, State, Target
from ..model.chain import DraftChain


class LayerParallel(DraftChain):
    """A chain from a model whose middle layers run in groups of ``size``. What it reads of the committed text is exact: that is
    fed in order at the start of each round, and gives the first token's law, too."""

    def __init__(self, model: Target, size: int):
        super().__init__(model.fuzzy(size))
        self.size = size

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = super().propose(state, budget)
        middle = max(0, self.model.layers - 2)
        if len(tree):
            state.note("side_by_side", layers=self.model.layers, size=self.size, groups=-(-middle // self.size), exact=1,
                       steps=2 + -(-middle // self.size) if middle else self.model.layers)
        return tree
