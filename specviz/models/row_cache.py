"""KV cache of a trained draft head for one run: the rows of the text, followed by draft rows (nodes of a
draft tree), which are dropped after the round."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..kernels.sequence_rows import SequenceRows, chain_rows
from .cuda_graph_capture import BUCKETS
from .eagle_layers import FusedLayers
from .static_rows import StaticRowBuffer, fits_bucket
from .static_rows import run as run_static

STEP = 256  # slots are allocated in multiples of this


class RowCache:
    """KV cache of one run over shared ``FusedLayers``.

    The first ``count`` slots are the text, row i at position first + i. Draft rows follow and are dropped
    by the next ``read`` or ``crop``. With static shapes, small numbers of rows run in buckets
    (static_rows.py); the slots are the same.
    """

    def __init__(self, net: FusedLayers):
        self.net = net
        self.first = 0
        self.count = 0
        self._slots: Tensor | None = None
        self._static: StaticRowBuffer | None = None
        self._scratch, self._sees = (
            0,
            None,
        )  # rows of the tree; their attention mask [1 + rows, rows], on the host

    def kv(self) -> Tensor:
        """Return keys (rotated, pairs adjacent) and values of the text rows, [layers, 2, kv_heads, count,
        head_dim]."""
        return self._buffer(self.count)[:, :, :, : self.count]

    def crop(self, count: int) -> None:
        """Keep only the first ``count`` rows of the text; drop the draft rows."""
        self.count, self._scratch = min(self.count, count), 0

    def restart(self, first: int) -> None:
        """Drop all rows; the next row read is at position ``first``."""
        self.first = first
        self.count = 0
        self._scratch = 0

    def read(self, x: Tensor, passing: int = 0) -> Tensor:
        """Append text rows x [n, hidden] and return their outputs [n, hidden]. The last ``passing`` rows
        are computed but not kept."""
        out = []
        for part in x.split(STEP):
            n = len(part)
            out.append(self._run(part, list(range(n)), _causal(n)))
            self.count += n
        self.count, self._scratch = self.count - passing, 0
        return out[0] if len(out) == 1 else torch.cat(out)

    def branch(
        self, x: Tensor, parents: Sequence[int] | Tensor, depths: Sequence[int], side: int = 1
    ) -> Tensor:
        """Run draft rows x [n, hidden] after the last text row and return their outputs [n, hidden].

        parents: index of each row's parent among the draft rows of this and earlier calls, -1 for the last
        text row; depths: 1 for its children. A row attends to the text, its ancestors and itself; groups of
        ``side`` consecutive rows also attend to each other. For a tree on a device, ``parents`` is instead
        the attention mask there, [n, draft rows], for this and later calls.
        """
        n, old = len(x), self._scratch
        if isinstance(parents, Tensor):
            self._sees, self._scratch = None, old + n
            return self._run(x, [depth - 1 for depth in depths], parents)
        self._sees, new = _grown(self._sees if old else None, tuple(parents), side)
        self._scratch = old + n
        return self._run(x, [depth - 1 for depth in depths], new)

    def _run(self, x: Tensor, depths: list[int], sees: Tensor, work: Callable[..., Any] | None = None) -> Any:
        """Run the net (or another function of it) over the last draft rows: depths [n] after the text, sees
        [n, draft rows]."""
        n, draft_rows = sees.shape
        work, buffer = work or self.net.run, self._buffer(self.count + draft_rows, max(depths))
        if self._static is not None and fits_bucket(n, draft_rows):
            return run_static(
                self.net, self._static, x, self.first, self.count, depths, sees, work, work.__name__
            )
        sees = sees.cpu()  # tensors of varying shape are built on the host
        at, first = self.count + draft_rows - n, self.first + self.count
        if self.net.compiled is not None:  # the compiled pass has the rotations of all positions
            self.net.rotations_to(first + max(depths) + 1)
            return work(x, None, buffer, at, self.sequence_rows(sees, depths, self.count, at))
        rotation = self.net.rotations_at([first + depth for depth in depths])
        return work(x, rotation, buffer, at, self._mask(sees, x))

    def sequence_rows(self, sees: Tensor, depths: Sequence[int], past: int, at: int) -> SequenceRows:
        """Return rows in slots at.. as the compiled pass reads them: they see the first ``past`` slots and
        those after these that ``sees`` [n, slots] says. depths [n]: after the text."""
        slots = self._buffer(0)
        cache, capacity = slots.data_ptr(), slots.shape[3]
        n, first = len(depths), self.first + self.count
        counts, lists, causal = _listed(sees)
        if causal and at == past and list(depths) == list(range(n)):
            return chain_rows(cache, capacity, [0] * n, at, first, first + n)
        return SequenceRows(
            cache,
            capacity,
            np.zeros(n, np.int64),
            np.array(depths) + first,
            np.arange(at, at + n),
            np.full(n, past),
            counts,
            lists + np.int32(past),
        )

    def _mask(self, sees: Tensor, x: Tensor) -> Tensor | None:
        """Return the bias added to scores, [group * rows, slots]: all text rows are visible, and the draft
        rows of ``sees``."""
        tile = _tile(sees, self.net.group, x.dtype)
        if tile is None or not self.count:
            return tile if tile is None else tile.to(x.device)
        mask = torch.zeros(tile.shape[0], self.count + tile.shape[1], dtype=x.dtype)
        mask[:, self.count :] = tile
        return mask.to(x.device)

    def _buffer(self, slots: int, ahead: int = 0) -> Tensor:
        """Return slots for ``count`` rows, with rotations up to ``ahead`` positions after the text."""
        if self.net.static:
            return self._static_buffer(slots + BUCKETS[-1], self.first + max(slots, self.count + ahead + 1))
        have = 0 if self._slots is None else self._slots.shape[3]
        if slots > have or self._slots is None:
            bigger = self.net.new_slots(-(-max(slots, 2 * have, 1) // STEP) * STEP)
            if self._slots is not None:
                bigger[:, :, :, :have] = self._slots
            self._slots = bigger
        return self._slots

    def _static_buffer(self, slots: int, positions: int) -> Tensor:
        old = self._static
        if old is None or slots > old.capacity or positions > len(old.rotation):
            pool = self.net.buffers
            assert pool is not None  # static layers have one
            self._static = new = pool.take_buffer(slots, positions)
            if old is not None:
                with torch.inference_mode():
                    new.slots[:, :, :, : self.count] = old.slots[:, :, :, : self.count]
                self._gone()
            self._gone = weakref.finalize(self, pool.return_buffer, new)
            return new.slots
        return old.slots


# Cached by the tensors they are made from, since tree shapes repeat from round to round.
@lru_cache(maxsize=512)
def _grown(before: Tensor | None, parents: tuple[int, ...], side: int) -> tuple[Tensor, Tensor]:
    """Return the attention mask of a tree extended by rows below ``parents``, [1 + rows, rows], and its new
    rows. before: the mask so far; row 0 is the root, which has no draft row."""
    old, n = 0 if before is None else before.shape[1], len(parents)
    sees = torch.zeros(1 + old + n, old + n, dtype=torch.bool)
    if before is not None:
        sees[: 1 + old, :old] = before
    sees[1 + old :] = sees[[parent + 1 for parent in parents]]
    own = torch.arange(n) // side
    sees[1 + old :, old:] |= own == own[:, None]
    return sees, sees[1 + old :]


@lru_cache(maxsize=512)
def _listed(sees: Tensor) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return, for the mask ``sees`` [n, slots], how many slots each row sees, int64 [n]; which, int32 [n,
    most], in order; and whether every row sees itself and all rows before it."""
    mask = sees.numpy()
    counts = mask.sum(1)
    lists = np.argsort(~mask, axis=1, kind="stable")[:, : counts.max()].astype(np.int32)
    return (
        counts,
        lists,
        mask.shape[0] == mask.shape[1] and np.array_equal(mask, np.tri(len(mask), dtype=bool)),
    )


@lru_cache(maxsize=512)
def _tile(sees: Tensor, group: int, dtype: torch.dtype) -> Tensor | None:
    """Return the bias for the mask ``sees`` [n, draft rows], repeated for the queries of a group; None if
    every row sees everything."""
    return (
        None
        if bool(sees.all())
        else torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, -torch.inf).repeat(group, 1)
    )


@lru_cache(maxsize=64)
def _causal(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril_()
