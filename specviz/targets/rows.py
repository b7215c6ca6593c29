"""The rows of one forward pass: token ids, slots, and attention masks."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from ..core import DraftTree

LARGE = 128  # masks of larger trees are not cached


@dataclass(frozen=True, eq=False)
class Shape:
    """Which scratch rows each row attends to, for rows lo..n: depth [n-lo], sees [n-lo, n] (bool, the row itself included).

    all_seen: every row attends to every scratch row, so no mask is needed.
    """

    depth: Tensor
    sees: Tensor
    all_seen: bool


@dataclass(frozen=True)
class Rows:
    """Input of one forward pass: rows lo..n of the scratch (row 0: the root, row i+1: node i), after ``past`` committed rows.

    ids [n-lo]: token ids; last: return logits of the last row only.
    """

    tree: DraftTree
    ids: list[int]
    past: int
    lo: int
    last: bool

    @cached_property
    def shape(self) -> Shape:
        return shape_of(self.tree.parents, self.lo)

    @property
    def device_topology(self) -> Shape:
        """The mask for a pass with static shapes; for a tree built on a device it stays on the device."""
        left = self.tree.device_topology
        if left is None or len(self.ids) != len(self.tree) + 1 - self.lo:  # deferred tokens precede the tree
            return self.shape
        return Shape(torch.tensor([0, *left.depths][self.lo:]), left.sees[self.lo:], False)

    @cached_property
    def chain(self) -> bool:
        return self.tree.parents == _line(len(self.tree))

    def entries(self, layer: int):
        """Yield the entries of a layer whose rows are in this pass, with their row indices."""
        for entry in self.tree.inputs:
            if entry.layer == layer and entry.nodes and min(entry.nodes) + 1 >= self.lo:
                yield entry, [node + 1 - self.lo for node in entry.nodes]


def _shape(parents: tuple[int, ...], lo: int) -> Shape:
    n = len(parents) + 1
    if parents == _line(n - 1):
        sees = torch.ones(n, n, dtype=torch.bool).tril_()[lo:]
        return Shape(torch.arange(lo, n), sees, n - lo == 1)
    depth, bits = [0], [1]  # a row's ancestors as bits of one integer, to avoid tensor operations per node
    for i, parent in enumerate(parents):
        depth.append(depth[parent + 1] + 1)
        bits.append(bits[parent + 1] | 1 << (i + 1))
    width = (n + 7) // 8
    packed = torch.frombuffer(bytearray(b"".join(b.to_bytes(width, "little") for b in bits[lo:])), dtype=torch.uint8)
    sees = (packed.view(-1, width, 1) >> torch.arange(8, dtype=torch.uint8) & 1).view(n - lo, width * 8)[:, :n].bool()
    return Shape(torch.tensor(depth[lo:]), sees, bool(sees.all()))


_cached_shape = lru_cache(maxsize=512)(_shape)


def shape_of(parents: tuple[int, ...], lo: int) -> Shape:
    """Return the mask of the rows of a tree from lo on; cached for small trees, whose shapes repeat."""
    return (_shape if len(parents) > LARGE else _cached_shape)(parents, lo)


@lru_cache(maxsize=512)
def _line(n: int) -> tuple[int, ...]:
    """Return the parents of a chain of n nodes."""
    return tuple(range(-1, n - 1))


class AppendableRows:
    """A tensor that grows by rows. Views returned earlier never change."""

    def __init__(self, first: Tensor):
        self._buffer, self._count = first, len(first)

    def first(self, count: int) -> Tensor:
        return self._buffer[:min(count, self._count)]

    def add(self, keep: int, more: Tensor) -> Tensor:
        """Keep the first ``keep`` rows, append ``more``, and return a view."""
        n = keep + len(more)
        if n > len(self._buffer) or keep < self._count:
            bigger = more.new_empty(max(n, 2 * keep, 8), *more.shape[1:])
            bigger[:keep] = self._buffer[:keep]
            self._buffer = bigger
        self._buffer[keep:n] = more
        self._count = n
        return self._buffer[:n]
