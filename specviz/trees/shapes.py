"""Tree shapes fixed before any token is known: each node is its parent and its rank among the siblings (0 = first drawn).

A shape does not depend on tokens, so a tree sampled on it keeps its distributions.
"""
from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property, lru_cache


@dataclass(frozen=True)
class Shape:
    """A fixed tree shape.

    parents[i]: index of the parent, -1 = root; ranks[i]: rank among its siblings. Nodes are sorted by level, siblings adjacent.
    """

    parents: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        out: list[int] = []
        for parent in self.parents:
            out.append(1 if parent < 0 else out[parent] + 1)
        return tuple(out)

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Node indices of depth 1, 2, ..."""
        out: list[list[int]] = []
        for i, depth in enumerate(self.depths):
            if depth > len(out):
                out.append([])
            out[depth - 1].append(i)
        return tuple(tuple(level) for level in out)

    @cached_property
    def fanout(self) -> dict[int, int]:
        """Return the number of children of each inner node; -1 is the root."""
        out: dict[int, int] = {}
        for parent in self.parents:
            out[parent] = out.get(parent, 0) + 1
        return out

    @lru_cache(maxsize=64)  # noqa: B019 - shapes live as long as the process
    def within(self, depth: int, width: int) -> Shape:
        """Return the part of at most this depth and this many children per node."""
        keep, at = [], {-1: -1}
        for i, (parent, rank) in enumerate(zip(self.parents, self.ranks)):
            if rank < width and self.depths[i] <= depth and parent in at:
                at[i] = len(keep)
                keep.append(i)
        return Shape(tuple(at[self.parents[i]] for i in keep), tuple(self.ranks[i] for i in keep))

    @classmethod
    def of_paths(cls, paths) -> Shape:
        """Build a shape from rank paths such as (0, 1): the second child of the root's first child. Every prefix must be listed
        too."""
        paths = sorted((tuple(p) for p in paths), key=lambda p: (len(p), p))
        at = {(): -1} | {p: i for i, p in enumerate(paths)}
        return cls(tuple(at[p[:-1]] for p in paths), tuple(p[-1] for p in paths))


def product(widths) -> Shape:
    """Return the shape in which every node of depth i has widths[i] children (SpecInfer's expansion, MCSD's k-configuration)."""
    level, paths = [()], []
    for width in widths:
        level = [path + (rank,) for path in level for rank in range(width)]
        paths += level
    return Shape.of_paths(paths)


@lru_cache(maxsize=256)
def sparse(width: int, depth: int, nodes: int, first: float = 0.6, shrink: float = 0.4) -> Shape:
    """Return the ``nodes`` most probable nodes of the full width-ary tree when the sibling of rank r is correct with probability
    first*shrink**r.

    Wide near the root and along first children, narrow elsewhere, like Medusa's and Sequoia's measured shapes.
    """
    heap: list[tuple[float, tuple[int, ...]]] = [(-first, (0,))] if depth and width and nodes else []
    paths = []
    while heap and len(paths) < nodes:
        value, path = heapq.heappop(heap)
        paths.append(path)
        if path[-1] + 1 < width:
            heapq.heappush(heap, (value * shrink, path[:-1] + (path[-1] + 1,)))
        if len(path) < depth:
            heapq.heappush(heap, (value * first, path + (0,)))
    return Shape.of_paths(paths)


def _spread(*groups: tuple[str, int]) -> list[tuple[int, ...]]:
    """Expand ("01", 3) to the first three children of path 0-1."""
    return [tuple(int(c) for c in path) + (rank,) for path, count in groups for rank in range(count)]


def by_level(*levels: tuple[int, ...]) -> Shape:
    """Return a shape from levels that give each node's parent by its index in the level above."""
    above, paths = [()], []
    for level in levels:
        above = [above[parent] + (level[:i].count(parent),) for i, parent in enumerate(level)]
        paths += above
    return Shape.of_paths(paths)


STREE = {"12 places": by_level((0, 0, 0), (0, 0, 1), (0, 0, 1), (0, 0, 0)),
         "17 places": by_level((0, 0, 0, 0, 0), (0, 0, 1, 2), (0, 0, 1, 2), (0, 0, 1, 1))}
"""The static trees of STree's authors, for their 8 B hybrid and for a Mamba-2 of 130 M."""

RECYCLING = Shape.of_paths(_spread(
    ("", 8),
    ("0", 8), ("1", 4), ("2", 3), ("3", 2), ("4", 1), ("5", 1), ("6", 1), ("7", 1),
    ("00", 8), ("01", 3), ("02", 2), *((f"0{i}", 1) for i in range(3, 8)),
    ("10", 2), ("11", 1), *((f"{i}0", 1) for i in range(2, 6)),
    ("000", 5), ("001", 2), ("002", 1), ("003", 1), ("004", 1), ("010", 1), ("020", 1), ("100", 1), ("200", 1), ("300", 1),
    ("0000", 3), ("0001", 1), ("0002", 1), ("0010", 1), ("0100", 1), ("1000", 1),
    ("00000", 2), ("00010", 1),
))
"""The 80-node tree of Token Recycling (levels of 8, 21, 25, 15, 8 and 3)."""

MEDUSA = Shape.of_paths(_spread(
    ("", 10),
    ("0", 10), ("1", 7), ("2", 3), ("3", 2), *((str(i), 1) for i in range(4, 10)),
    ("00", 10), ("01", 3), ("02", 2), *((f"0{i}", 1) for i in range(3, 8)), ("10", 2), ("20", 1),
    ("000", 2),
))
"""The 63-node tree of Medusa's authors, which TR-Jacobi uses, too (levels of 10, 28, 23 and 2)."""
