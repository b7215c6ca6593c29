"""The keys and values of a trained head in one run: the rows of the text, and behind them the scratch of a tree that is thrown away."""
from __future__ import annotations

import weakref
from functools import lru_cache
from typing import Callable, Sequence

import torch
from torch import Tensor

from .eagle_layers import Fused
from .recorded import BUCKETS
from .still_rows import StillRoom, holds
from .still_rows import run as run_still

STEP = 256  # slots are allocated in multiples of this


class RowCache:
    """One run's keys and values over shared ``Fused`` layers.

    ``count`` rows of text lie in order, row i at position first + i; a tree's rows come behind them and are forgotten by the
    next ``read`` or ``crop``. Where the net's shapes stay, few rows at once run in buckets (still_rows.py); the slots are the same.
    """

    def __init__(self, net: Fused):
        self.net, self.first, self.count = net, 0, 0
        self._slots: Tensor | None = None
        self._still: StillRoom | None = None
        self._scratch, self._sees = 0, None  # rows of the tree; who sees whom among them, [1 + rows, rows], on the host

    def kv(self) -> Tensor:
        """Keys (rotated, pairs side by side) and values of the text rows, [layers, 2, kv_heads, count, head_dim]."""
        return self._room(self.count)[:, :, :, :self.count]

    def crop(self, count: int) -> None:
        """Only the first ``count`` rows of the text are true."""
        self.count, self._scratch = min(self.count, count), 0

    def restart(self, first: int) -> None:
        """Nothing is held; the next row read stands at position ``first``."""
        self.first, self.count, self._scratch = first, 0, 0

    def read(self, x: Tensor, passing: int = 0) -> Tensor:
        """Text rows x [n, hidden] behind those held; their outputs [n, hidden]. The last ``passing`` of them do not stay."""
        out = []
        for part in x.split(STEP):
            n = len(part)
            out.append(self._run(part, list(range(n)), _causal(n)))
            self.count += n
        self.count, self._scratch = self.count - passing, 0
        return out[0] if len(out) == 1 else torch.cat(out)

    def branch(self, x: Tensor, parents: Sequence[int] | Tensor, depths: Sequence[int], side: int = 1) -> Tensor:
        """Rows of a tree below the last text row; parents: scratch rows of earlier calls, -1 = the last text row; depths: 1
        for its children. A row sees the text, its ancestors and itself; of ``side`` rows that follow each other each sees all. Where
        the parents lie on a device, ``parents`` are who sees whom there, [n, scratch], for this call and those after it."""
        n, old = len(x), self._scratch
        if isinstance(parents, Tensor):
            self._sees, self._scratch = None, old + n
            return self._run(x, [depth - 1 for depth in depths], parents)
        self._sees, new = _grown(self._sees if old else None, tuple(parents), side)
        self._scratch = old + n
        return self._run(x, [depth - 1 for depth in depths], new)

    def _run(self, x: Tensor, depths: list[int], sees: Tensor, work: Callable[..., Tensor | None] | None = None) -> Tensor | None:
        """The net (or other work of it) over rows at the end of the scratch: depths [n] behind the text, sees [n, scratch]."""
        n, scratch = sees.shape
        work, room = work or self.net.run, self._room(self.count + scratch, max(depths))
        if self._still is not None and holds(n, scratch):
            return run_still(self.net, self._still, x, self.first, self.count, depths, sees, work, work.__name__)
        sees = sees.cpu()  # shapes that change are made on the host
        turn = self.net.turned([self.first + self.count + depth for depth in depths])
        return work(x, turn, room, self.count + scratch - n, self._mask(sees, x))

    def _mask(self, sees: Tensor, x: Tensor) -> Tensor | None:
        """Added to scores, [group * rows, slots]: every text row held before is seen, and of the scratch what a row sees."""
        tile = _tile(sees, self.net.group, x.dtype)
        if tile is None or not self.count:
            return tile if tile is None else tile.to(x.device)
        mask = torch.zeros(tile.shape[0], self.count + tile.shape[1], dtype=x.dtype)
        mask[:, self.count:] = tile
        return mask.to(x.device)

    def _room(self, slots: int, ahead: int = 0) -> Tensor:
        """Slots for so many rows, and the rotations of those ``ahead`` of the text."""
        if self.net.still:
            return self._still_room(slots + BUCKETS[-1], self.first + max(slots, self.count + ahead + 1))
        have = 0 if self._slots is None else self._slots.shape[3]
        if slots > have or self._slots is None:
            bigger = self.net.new_slots(-(-max(slots, 2 * have, 1) // STEP) * STEP)
            if have:
                bigger[:, :, :, :have] = self._slots
            self._slots = bigger
        return self._slots

    def _still_room(self, slots: int, positions: int) -> Tensor:
        old = self._still
        if old is None or slots > old.capacity or positions > len(old.turn):
            self._still = self.net.rooms.take(slots, positions)
            if old is not None:
                with torch.inference_mode():
                    self._still.slots[:, :, :, :self.count] = old.slots[:, :, :, :self.count]
                self._gone()
            self._gone = weakref.finalize(self, self.net.rooms.give, self._still)
        return self._still.slots


# These are kept by the tensors they are made from: trees of a few shapes come back round after round.
@lru_cache(maxsize=512)
def _grown(before: Tensor | None, parents: tuple[int, ...], side: int) -> tuple[Tensor, Tensor]:
    """Who sees whom in a tree that grew by rows below ``parents``, [1 + rows, rows], and of that the new rows. before: the tree so far,
    row 0 the root, which is no scratch row."""
    old, n = 0 if before is None else before.shape[1], len(parents)
    sees = torch.zeros(1 + old + n, old + n, dtype=torch.bool)
    if before is not None:
        sees[:1 + old, :old] = before
    sees[1 + old:] = sees[[parent + 1 for parent in parents]]
    own = torch.arange(n) // side
    sees[1 + old:, old:] |= own == own[:, None]
    return sees, sees[1 + old:]


@lru_cache(maxsize=512)
def _tile(sees: Tensor, group: int, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores of rows that see [n, scratch], repeated for the queries of a group; None where each sees all."""
    return None if bool(sees.all()) else torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, -torch.inf).repeat(group, 1)


@lru_cache(maxsize=64)
def _causal(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril_()
