"""Tree shapes for heads, from the measured accuracy of each rank of each head (Medusa, Cai et al., arXiv 2401.10774, section
2.3.3).

Head i predicts the token at depth i + 1 regardless of the path, so a path of ranks (r1, r2, ...) is correct with about the
product of the accuracies. Greedily adding the most probable node gives the best tree of each size.
"""
from __future__ import annotations

import heapq

from ...trees import Shape

# The authors' tree for Vicuna-7B, in the order of what a place was worth: any beginning of it is a tree.
PUBLISHED = tuple(
    tuple(int(rank) for rank in path)
    for path in (
        "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000 011 006 030 "
        "50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070"
    ).split()
)


def calibrated(accuracy: list[list[float]], nodes: int, depth: int = 10**9, width: int = 10**9) -> Shape:
    """Return the shape of the ``nodes`` most probable nodes, where the token of rank r of head i is correct with probability
    accuracy[i][r]."""
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
    """Return the expected number of tokens per round with this tree, including the target's own token. The heads'
    errors are assumed to be independent."""
    worth, total = {-1: 1.0}, 1.0
    for i, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
        worth[i] = worth[parent] * accuracy[shape.depths[i] - 1][rank]
        total += worth[i]
    return total


def shape_of(accuracy: list[list[float]], nodes: int, meant: int) -> Shape:
    """Return the heads' tree with ``nodes`` nodes. nodes 0: ``meant``, the number it was calibrated for. Heads without
    calibration get the authors' shape."""
    count = nodes or meant or len(PUBLISHED)
    return calibrated(accuracy, count) if accuracy else Shape.of_paths(PUBLISHED[:count])
