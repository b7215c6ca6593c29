"""The rows of one forward pass: token ids, KV slots, and the tree attention mask.

A row is one position of the pass. Draft rows are the root (row 0) and the nodes of a draft tree (row i + 1:
node i), which follow the committed rows in the KV cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core import DraftTree

LARGE = 128  # masks of larger trees are not cached


@dataclass(frozen=True, eq=False)
class Shape:
    """The tree attention mask of rows lo..n of a tree: depth [n - lo] of each row, sees [n - lo, n] (bool):
    which draft rows each row attends to, itself included. All rows attend to all committed rows as well.

    all_seen: every row attends to every draft row, so no mask is needed.
    """

    depth: Tensor
    sees: Tensor
    all_seen: bool


@dataclass(frozen=True)
class Rows:
    """Input of one forward pass: draft rows lo..n (row 0: the root, row i + 1: node i), after ``past``
    committed rows. Rows before ``lo`` are already in the cache.

    ids [n - lo]: token ids; last: return logits of the last row only.
    """

    tree: DraftTree
    ids: list[int]
    past: int
    lo: int
    last: bool

    @cached_property
    def shape(self) -> Shape:
        """The tree attention mask of these rows, on the host."""
        return shape_of(self.tree.parents, self.lo)

    @property
    def causal_chain(self) -> bool:
        """Whether every row sees all rows before it, and no other."""
        return self.chain

    @property
    def device_topology(self) -> Shape:
        """The tree attention mask for a pass with static shapes; that of a tree built on a device stays on
        the device."""
        left = self.tree.device_topology
        if left is None or len(self.ids) != len(self.tree) + 1 - self.lo:  # deferred tokens precede the tree
            return self.shape
        return Shape(torch.tensor([0, *left.depths][self.lo :]), left.sees[self.lo :], False)

    @cached_property
    def chain(self) -> bool:
        """Whether the tree is a chain."""
        return self.tree.parents == _line(len(self.tree))

    def entries(self, layer: int):
        """Yield (HiddenInput, indices of its rows in this pass) for each replacement of hidden states at
        this layer."""
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
    packed = torch.frombuffer(
        bytearray(b"".join(b.to_bytes(width, "little") for b in bits[lo:])), dtype=torch.uint8
    )
    sees = (
        (packed.view(-1, width, 1) >> torch.arange(8, dtype=torch.uint8) & 1)
        .view(n - lo, width * 8)[:, :n]
        .bool()
    )
    return Shape(torch.tensor(depth[lo:]), sees, bool(sees.all()))


_cached_shape = lru_cache(maxsize=512)(_shape)


def shape_of(parents: tuple[int, ...], lo: int) -> Shape:
    """Return the tree attention mask of a tree's rows from row ``lo`` on. parents: of the nodes, -1 = root.
    Masks of small trees are cached, because their shapes repeat."""
    return (_shape if len(parents) > LARGE else _cached_shape)(parents, lo)


@lru_cache(maxsize=512)
def _line(n: int) -> tuple[int, ...]:
    """Return the parents of a chain of n nodes."""
    return tuple(range(-1, n - 1))


class SeenRows(NamedTuple):
    """The draft rows that each row of a pass sees: counts int64 [rows]; lists int32 [rows, most], in order;
    depths int64 [rows]."""

    counts: np.ndarray
    lists: np.ndarray
    depths: np.ndarray


def seen_rows(shape: Shape) -> SeenRows:
    """Return the draft rows that each row of a tree attention mask sees, itself included."""
    sees = shape.sees.numpy()
    counts = sees.sum(1)
    lists = np.argsort(~sees, axis=1, kind="stable")[:, : counts.max()]
    return SeenRows(counts, lists.astype(np.int32), shape.depth.numpy())


cached_seen_rows = lru_cache(maxsize=512)(seen_rows)


class AppendableRows:
    """A tensor [rows, ...] that grows by rows in place. Views returned earlier never change. count: rows of a
    function ``first`` that computes the first rows when they are needed."""

    def __init__(self, first: Tensor | Callable[[], Tensor], count: int = 0):
        self._given = first
        self._count = len(first) if isinstance(first, Tensor) else count

    @property
    def _buffer(self) -> Tensor:
        if not isinstance(self._given, Tensor):
            self._given = self._given()
        return self._given

    def first(self, count: int) -> Tensor:
        """Return a view of the first ``count`` rows."""
        return self._buffer[: min(count, self._count)]

    def add(self, keep: int, more: Tensor) -> Tensor:
        """Keep the first ``keep`` rows, append ``more``, and return a view of all rows."""
        n = keep + len(more)
        if n > len(self._buffer) or keep < self._count:
            bigger = more.new_empty(max(n, 2 * keep, 8), *more.shape[1:])
            bigger[:keep] = self._buffer[:keep]
            self._given = bigger
        self._buffer[keep:n] = more
        self._count = n
        return self._buffer[:n]
