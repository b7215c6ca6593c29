"""Tree shapes for heads, from the measured accuracy of each rank of each head (Medusa, Cai et al., arXiv
2401.10774, section 2.3.3).

Head i predicts the token at depth i + 1 regardless of the path, so a path of ranks (r1, r2, ...) is correct
with about the product of the accuracies. Greedily adding the most probable node gives the best tree of each
size.
"""

from __future__ import annotations

import heapq

from ...trees import Shape

# Medusa's published tree for Vicuna-7B, most probable nodes first, as rank paths: any prefix of this list
# is a tree.
PUBLISHED = tuple(
    tuple(int(rank) for rank in path)
    for path in (
        "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000 011 006 030 "
        "50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070"
    ).split()
)


def calibrated_shape(
    accuracy: list[list[float]], nodes: int, depth: int = 10**9, width: int = 10**9
) -> Shape:
    """Return the shape of the ``nodes`` most probable nodes, if the token of rank r of head i is correct
    with probability accuracy[i][r]. depth, width: maximum levels and children per node."""
    accuracy = [row[:width] for row in accuracy[:depth]]
    heap: list[tuple[float, tuple[int, ...]]] = [(-accuracy[0][0], (0,))] if accuracy and accuracy[0] else []
    paths: list[tuple[int, ...]] = []
    while heap and len(paths) < nodes:
        value, path = heapq.heappop(heap)
        paths.append(path)
        row, last = accuracy[len(path) - 1], path[-1]
        if last + 1 < len(row):
            above = value / row[last] if row[last] else 0.0
            heapq.heappush(heap, (above * row[last + 1], (*path[:-1], last + 1)))
        if len(path) < len(accuracy):
            heapq.heappush(heap, (value * accuracy[len(path)][0], (*path, 0)))
    return Shape.of_paths(paths)


def expected_length(accuracy: list[list[float]], shape: Shape) -> float:
    """Return the expected number of tokens per round with a tree of this shape, including the target's own
    token, if the token of rank r of head i is correct with probability accuracy[i][r] and the heads' errors
    are independent."""
    worth, total = {-1: 1.0}, 1.0
    for i, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
        worth[i] = worth[parent] * accuracy[shape.depths[i] - 1][rank]
        total += worth[i]
    return total


def shape_for_heads(accuracy: list[list[float]], nodes: int, meant: int) -> Shape:
    """Return the shape of ``nodes`` nodes for heads with the measured ``accuracy`` (see
    ``calibrated_shape``); nodes 0: ``meant`` nodes, the number for which the heads were calibrated. Heads
    without calibration (empty ``accuracy``) get Medusa's published shape."""
    count = nodes or meant or len(PUBLISHED)
    return calibrated_shape(accuracy, count) if accuracy else Shape.of_paths(PUBLISHED[:count])
