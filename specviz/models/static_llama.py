"""The Llama family's forward with shapes that never change, so that one recording of it (a CUDA graph) serves every round.

What a round brings lies in tensors that stay: token ids, positions, slots, how many rows are committed, who sees whom in the
scratch. A forward always runs as many rows as its bucket has; the rows beyond the real ones see only themselves. Attention reads
all slots of the room: which of them a row may see follows from the map of slots and the number of committed rows, on the device.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .llama import Llama

BUCKETS = (1, 2, 4, 8, 16, 32, 64)  # rows of a forward
WIDTH = 2 * BUCKETS[-1]  # scratch rows that a row may see


class Inputs:
    """What one bucket reads. numbers [3 * rows + 1]: ids, positions, slots, committed rows; bias [rows, 1 + WIDTH + 1], added to
    scores: on committed slots, on the scratch, on free slots. ``put`` fills both without waiting for the device."""

    def __init__(self, rows: int, dtype: torch.dtype, device: torch.device):
        pinned = device.type == "cuda"
        self.rows = rows
        self._numbers = torch.zeros(3 * rows + 1, dtype=torch.int64, pin_memory=pinned)
        self._bias = torch.zeros(rows, WIDTH + 2, dtype=dtype, pin_memory=pinned)
        self.numbers, self.bias = (torch.zeros_like(x, device=device) for x in (self._numbers, self._bias))
        self._shown: Any = None

    def put(self, ids: list[int], positions: Tensor, slots: list[int], past: int, sees: Tensor, lo: int) -> None:
        """ids, positions [n]; slots [rows]; sees [n, lo + n], bool, of the scratch."""
        n, rows = len(ids), self.rows
        idle = [0] * (rows - n)
        self._numbers[:rows] = torch.tensor(ids + idle)
        self._numbers[rows:rows + n] = positions
        self._numbers[rows + n:2 * rows] = 0
        self._numbers[2 * rows:] = torch.tensor([*slots, past])
        self.numbers.copy_(self._numbers, non_blocking=True)
        if self._shown is not sees:  # shapes come back round after round
            self._bias.fill_(-torch.inf)
            self._bias[:n, 0] = 0
            self._bias[:n, 1:1 + lo + n].masked_fill_(sees, 0)
            own = torch.arange(n, rows)
            self._bias[own, 1 + lo + own] = 0
            self.bias.copy_(self._bias, non_blocking=True)
            self._shown = sees

    def split(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """ids, positions, slots [rows] and the number of committed rows [1]."""
        return self.numbers.split([self.rows, self.rows, self.rows, 1])


@dataclass
class Room:
    """One run's keys and values, [layers, 2, kv_heads, slots, head_dim], ``order`` [slots] (the position that lies in a slot),
    rotations of as many positions, and what was recorded on them. A room outlives its run: recordings hold on to its memory."""

    slots: Tensor
    order: Tensor
    turn: Tensor
    inputs: dict[int, Inputs] = field(default_factory=dict)
    graphs: dict[tuple[int, frozenset[str]], Any] = field(default_factory=dict)
    pool: Any = None

    @property
    def capacity(self) -> int:
        return self.order.shape[0]

    def arrange(self, positions: list[int]) -> None:
        """The map of slots has changed."""
        found = torch.tensor(positions, dtype=self.order.dtype)
        self.order.copy_(found.pin_memory() if self.order.is_cuda else found, non_blocking=True)


def new_room(model: Llama, slots: int) -> Room:
    """Zeros, not whatever memory held: a slot that no row sees still meets a weight of 0, and 0 times NaN is NaN."""
    return Room(model.new_slots(slots).zero_(), torch.arange(slots, dtype=torch.int32, device=model.device), model.turns(slots)[:slots])


def forward(model: Llama, room: Room, inputs: Inputs, want: frozenset[str], steady: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits [rows, vocab] and the states asked for. Nothing here depends on a value: only on shapes that stay.

    steady: attention adds up in double precision, so that its result, rounded to half precision, does not depend on the order in
    which rows lie in their slots.
    """
    ids, positions, where, past = inputs.split()
    x, turn, taps = model.embed(ids), room.turn.index_select(0, positions), {}
    mask = inputs.bias.index_select(1, (room.order - past).clamp(-1, WIDTH).add(1)).repeat(model.group, 1)
    mask = mask.double() if steady else mask
    for i, block in enumerate(model.blocks):
        if f"layer:{i}" in want:
            taps[f"layer:{i}"] = x
        x = attend(model, block, x, turn, room.slots[i], where, mask)
        x = model.transform(block, x)
    x = model.norm_final(x)
    if "final" in want:
        taps["final"] = x
    return model.head(x), taps


def attend(model: Llama, block: Any, x: Tensor, turn: Tensor, slots: Tensor, where: Tensor, mask: Tensor) -> Tensor:
    """x plus its attention: keys and values go to slots ``where`` [rows]; mask [group * rows, slots] says what is seen."""
    q, new = model.project(block, x, turn)
    slots.index_copy_(2, where, new)
    keys, values = slots.unsqueeze(1).unbind(0)
    found = F.scaled_dot_product_attention(*(y.to(mask.dtype) for y in (q, keys, values)), mask)
    return model.join(block, x, found.to(x.dtype))


def bucket_of(rows: int) -> int | None:
    """The smallest bucket that holds so many rows; None when none does."""
    return next((bucket for bucket in BUCKETS if bucket >= rows), None)
