"""Draft a chain from DFlare's block, and note what its layers read."""
from __future__ import annotations

from functools import cached_property

from ....core import Budget, DraftTree, State
from ....drafters.heads.masked_block import BlockChain


class MixtureChain(BlockChain):
    """Draft a chain from a block drafter whose layers read mixtures of the target's layers."""

    @cached_property
    def shares(self) -> list[list[float]]:
        """The share of each of the target's layers in what a draft layer reads."""
        return [[round(share, 4) for share in row] for row in self.net.layer_fusion_weights.detach().softmax(-1).tolist()]

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = super().propose(state, budget)
        if len(tree):
            state.note("mixture", layers=list(self.net.read_layers), shares=self.shares)
        return tree
