"""Choose the subtree of a block's candidates that is worth its verification (TAPS, 2606.00487)."""
from __future__ import annotations

from typing import Any

from ....drafters.heads.masked_block import BlockTree
from ....drafters.heads.path_scores import Correction


class ReachTree(BlockTree):
    """Take nodes by their probability of being reached relative to their cost, 1 + ``depth_cost`` * (depth - 1), best first; end below
    ``threshold``. Both fall along a path, so what is taken is prefix-closed."""

    def __init__(self, head: Any, width: int, nodes: int, correction: Correction, depth_cost: float, threshold: float):
        super().__init__(head, width, nodes, correction)
        self.depth_cost, self.threshold = depth_cost, threshold

    def price(self, depth: int) -> float:
        return 1.0 + self.depth_cost * (depth - 1)

    def worth(self, utility: float) -> bool:
        return utility >= self.threshold
