"""Draft a chain from DFlare's block, and note what its layers read."""

from __future__ import annotations

from typing import Any

from ....core import Budget, DraftTree, State
from ....drafters.heads.masked_block import BlockChain


class MixtureChain(BlockChain):
    """Drafter of a chain from DFlare's block (2606.02091), whose layers read mixtures of the target's
    layers. shares [draft layers][target layers]: each target layer's weight in a draft layer's mixture, for
    the note."""

    def __init__(self, head: Any):
        super().__init__(head)
        self.shares = [
            [round(share, 4) for share in row]
            for row in head.layer_fusion_weights.detach().softmax(-1).tolist()
        ]

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = super().propose(state, budget)
        if len(tree):
            state.note("mixture", layers=list(self.net.read_layers), shares=self.shares)
        return tree
