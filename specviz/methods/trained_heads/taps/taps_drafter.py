"""Choose the subtree of a block's candidates that is worth its verification (TAPS, 2606.00487)."""

from __future__ import annotations

from typing import Any

from ....drafters.heads.masked_block import BlockTree
from ....drafters.heads.path_scores import Correction


class ReachTree(BlockTree):
    """Drafter of a tree over a block by TAPS (2606.00487): nodes in descending order of (probability of
    being reached) / (cost 1 + depth_cost * (depth - 1)), down to ``threshold``. Probability falls and cost
    rises along a path, so every drafted node's parent is drafted, too.

    head: the block drafter; correction: estimates the probabilities."""

    def __init__(
        self, head: Any, width: int, nodes: int, correction: Correction, depth_cost: float, threshold: float
    ):
        super().__init__(head, width, nodes, correction)
        self.depth_cost, self.threshold = depth_cost, threshold

    def node_cost(self, depth: int) -> float:
        return 1.0 + self.depth_cost * (depth - 1)

    def is_worth_verifying(self, utility: float) -> bool:
        return utility >= self.threshold
