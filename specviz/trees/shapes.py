"""Tree shapes fixed before any token is known: each node is its parent and its rank among the siblings (0 =
first drawn).

A shape does not depend on tokens, so a tree sampled on it keeps its distributions.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property, lru_cache


@dataclass(frozen=True)
class Shape:
    """A fixed tree shape without tokens.

    parents[i]: index of the parent of node i, -1 = root; ranks[i]: its rank among its siblings, 0 = most
    probable or first drawn. Nodes are sorted by level, siblings adjacent.
    """

    parents: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; 1 for the root's children."""
        out: list[int] = []
        for parent in self.parents:
            out.append(1 if parent < 0 else out[parent] + 1)
        return tuple(out)

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Node indices of each level: levels[i] lists the nodes of depth i + 1."""
        out: list[list[int]] = []
        for i, depth in enumerate(self.depths):
            if depth > len(out):
                out.append([])
            out[depth - 1].append(i)
        return tuple(tuple(level) for level in out)

    @cached_property
    def fanout(self) -> dict[int, int]:
        """Number of children of each inner node, by its index; -1 is the root."""
        out: dict[int, int] = {}
        for parent in self.parents:
            out[parent] = out.get(parent, 0) + 1
        return out

    @lru_cache(maxsize=64)  # noqa: B019 - shapes live as long as the process
    def within(self, depth: int, width: int) -> Shape:
        """Return the shape cut to at most ``depth`` levels and at most ``width`` children per node (the
        first ranks)."""
        keep, at = [], {-1: -1}
        for i, (parent, rank) in enumerate(zip(self.parents, self.ranks)):
            if rank < width and self.depths[i] <= depth and parent in at:
                at[i] = len(keep)
                keep.append(i)
        return Shape(tuple(at[self.parents[i]] for i in keep), tuple(self.ranks[i] for i in keep))

    @classmethod
    def of_paths(cls, paths) -> Shape:
        """Build a shape from rank paths such as (0, 1): the second child of the root's first child. Every
        prefix must be listed too."""
        paths = sorted((tuple(p) for p in paths), key=lambda p: (len(p), p))
        at = {(): -1} | {p: i for i, p in enumerate(paths)}
        return cls(tuple(at[p[:-1]] for p in paths), tuple(p[-1] for p in paths))


def full_tree(widths) -> Shape:
    """Return the shape in which every node of depth i has widths[i] children; the root has depth 0
    (SpecInfer's expansion configuration, MCSD's k-configuration)."""
    level, paths = [()], []
    for width in widths:
        level = [path + (rank,) for path in level for rank in range(width)]
        paths += level
    return Shape.of_paths(paths)


@lru_cache(maxsize=256)
def sparse_tree(width: int, depth: int, nodes: int, first: float = 0.6, shrink: float = 0.4) -> Shape:
    """Return the shape of the ``nodes`` most probable nodes of the full tree with ``width`` children per
    node and ``depth`` levels, if the sibling of rank r is accepted with probability first * shrink**r.

    It is wide near the root and along first children and narrow elsewhere, like the shapes that Medusa and
    Sequoia measured.
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


def shape_from_levels(*levels: tuple[int, ...]) -> Shape:
    """Return the shape given by levels: levels[i] lists, for each node of depth i + 1, the index of its
    parent in the level above."""
    above, paths = [()], []
    for level in levels:
        above = [above[parent] + (level[:i].count(parent),) for i, parent in enumerate(level)]
        paths += above
    return Shape.of_paths(paths)


STREE = {
    "12 places": shape_from_levels((0, 0, 0), (0, 0, 1), (0, 0, 1), (0, 0, 0)),
    "17 places": shape_from_levels((0, 0, 0, 0, 0), (0, 0, 1, 2), (0, 0, 1, 2), (0, 0, 1, 1)),
}
"""The static trees of STree's authors (Wu et al. 2505.14969): 12 nodes for their hybrid model with 8 B parameters, 17 nodes for a
Mamba-2 with 130 M. The keys are values of the method's knob."""

RECYCLING = Shape.of_paths(
    _spread(
        ("", 8),
        ("0", 8),
        ("1", 4),
        ("2", 3),
        ("3", 2),
        ("4", 1),
        ("5", 1),
        ("6", 1),
        ("7", 1),
        ("00", 8),
        ("01", 3),
        ("02", 2),
        *((f"0{i}", 1) for i in range(3, 8)),
        ("10", 2),
        ("11", 1),
        *((f"{i}0", 1) for i in range(2, 6)),
        ("000", 5),
        ("001", 2),
        ("002", 1),
        ("003", 1),
        ("004", 1),
        ("010", 1),
        ("020", 1),
        ("100", 1),
        ("200", 1),
        ("300", 1),
        ("0000", 3),
        ("0001", 1),
        ("0002", 1),
        ("0010", 1),
        ("0100", 1),
        ("1000", 1),
        ("00000", 2),
        ("00010", 1),
    )
)
"""The 80-node tree of Token Recycling (levels of 8, 21, 25, 15, 8 and 3)."""

MEDUSA = Shape.of_paths(
    _spread(
        ("", 10),
        ("0", 10),
        ("1", 7),
        ("2", 3),
        ("3", 2),
        *((str(i), 1) for i in range(4, 10)),
        ("00", 10),
        ("01", 3),
        ("02", 2),
        *((f"0{i}", 1) for i in range(3, 8)),
        ("10", 2),
        ("20", 1),
        ("000", 2),
    )
)
"""The 63-node tree of Medusa's authors, which TR-Jacobi uses, too (levels of 10, 28, 23 and 2)."""
