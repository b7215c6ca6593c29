"""Sequoia's dynamic program: the tree of a given size with the most accepted tokens (Chen et al. 2402.12374).

accept[b] is the probability that the sibling of rank b is the accepted one. The best tree of m nodes (the
root counted) in l levels whose root has b children is worth T[m, l, b] = max over y of T[y, l, b-1] +
accept[b-1] * max over b' of T[m-y, l-1, b'].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .shapes import Shape


class SequoiaPlan:
    """Table of the best trees with up to ``nodes`` nodes, ``depth`` levels (both without the root) and
    len(accept) children per node.

    accept[r]: probability that the sibling of rank r is the accepted one. ``value[m, l]``: expected tokens
    per round of the best tree with exactly m nodes in at most l levels, both including the root; -inf if
    there is none.
    """

    def __init__(self, accept: Sequence[float], nodes: int, depth: int):
        size, width = nodes + 1, len(accept)
        index = torch.arange(size + 1)
        rest = index[:, None] - index[None, :]  # m - y
        legal = (rest >= 1) & (index[None, :] >= 1)
        rest = rest.clamp(min=0)
        table = torch.full((size + 1, depth + 2, width + 1), -torch.inf, dtype=torch.float64)
        self._split = torch.zeros(
            size + 1, depth + 2, width + 1, dtype=torch.long
        )  # nodes on the side of the earlier siblings
        for levels in range(1, depth + 2):
            table[1, levels, 0] = 1.0
            below = table[:, levels - 1].amax(-1)
            fits = legal & (below[rest] > 0)
            for b in range(1, width + 1):
                worth = table[None, :, levels, b - 1] + accept[b - 1] * below[rest]
                worth = worth.masked_fill(~fits, -torch.inf)  # also where 0 * -inf is no number
                table[:, levels, b], self._split[:, levels, b] = worth.max(-1)
        self.value, self._fan = table.max(-1)

    def best(self, seconds: Callable[[int, int], float]) -> tuple[int, int]:
        """Return the (nodes, depth) with the fewest expected seconds per token, both without the root.
        seconds(nodes, depth): the cost of a round."""
        options = [
            (nodes, depth)
            for nodes in range(1, self.value.shape[0] - 1)
            for depth in range(1, self.value.shape[1] - 1)
            if self.value[nodes + 1, depth + 1] > 0
        ]
        return min(
            options, key=lambda option: seconds(*option) / float(self.value[option[0] + 1, option[1] + 1])
        )

    def shape(self, nodes: int, depth: int) -> Shape:
        """Return the best tree with ``nodes`` nodes and at most ``depth`` levels, both without the root."""
        paths: list[tuple[int, ...]] = []
        work: list[tuple[int, int, tuple[int, ...]]] = [(nodes + 1, depth + 1, ())]
        while work:
            size, levels, path = work.pop()
            for b in range(int(self._fan[size, levels]), 0, -1):
                earlier = int(self._split[size, levels, b])
                child = path + (b - 1,)
                paths.append(child)
                work.append((size - earlier, levels - 1, child))
                size = earlier
        return Shape.of_paths(paths)
