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

from ..core import LazyScalar, token_tensor
from .llama import Llama
from .recorded import WIDTH, Recordings, mask_of, seen_by, send


class Inputs:
    """What one bucket reads. numbers [3 * rows + 1]: ids, positions, slots, committed rows; bias [rows, 1 + WIDTH + 1], added to
    scores: on committed slots, on the scratch, on free slots. ``put`` fills both without waiting for the device."""

    def __init__(self, rows: int, dtype: torch.dtype, device: torch.device):
        self.rows = rows
        self.numbers = torch.zeros(3 * rows + 1, dtype=torch.int64, device=device)
        self.bias = torch.zeros(rows, WIDTH + 2, dtype=dtype, device=device)
        self._shown: Any = None

    def put(self, ids: list[int], positions: Tensor, slots: list[int], past: int, sees: Tensor, lo: int) -> None:
        """ids, positions [n]; slots [rows]; sees [n, lo + n], bool, of the scratch."""
        n, rows = len(ids), self.rows
        idle = [0] * (rows - n)
        known = [0 if type(token) is LazyScalar else token for token in ids]
        send(self.numbers, torch.tensor(known + idle + positions.tolist() + idle + [*slots, past]))
        if any(type(token) is LazyScalar for token in ids):
            self.numbers[:n].copy_(token_tensor(self.numbers.device, ids))
        if self._shown is not sees:  # shapes come back round after round
            send(self.bias, seen_by(rows, sees, lo, self.bias.dtype))
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
    recorded: Recordings = field(default_factory=Recordings)

    @property
    def capacity(self) -> int:
        return self.order.shape[0]

    def arrange(self, positions: list[int]) -> None:
        """The map of slots has changed."""
        send(self.order, torch.tensor(positions, dtype=self.order.dtype))


def new_room(model: Llama, slots: int) -> Room:
    """Zeros, not whatever memory held: a slot that no row sees still meets a weight of 0, and 0 times NaN is NaN."""
    return Room(model.new_slots(slots).zero_(), torch.arange(slots, dtype=torch.int32, device=model.device), model.turns(slots)[:slots])


def forward(model: Llama, room: Room, inputs: Inputs, want: frozenset[str], steady: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits [rows, vocab] and the states asked for. Nothing here depends on a value: only on shapes that stay.

    steady: attention adds up in double precision, so that its result, rounded to half precision, does not depend on the order in
    which rows lie in their slots.
    """
    ids, positions, where, past = inputs.split()
    x, turn, hidden_states = model.embed(ids), room.turn.index_select(0, positions), {}
    mask = mask_of(inputs.bias, room.order, past, model.group)
    mask = mask.double() if steady else mask
    for i, block in enumerate(model.blocks):
        if f"layer:{i}" in want:
            hidden_states[f"layer:{i}"] = x
        x = model.attend(block, x, turn, room.slots[i], where, mask)
        x = model.transform(block, x)
    x = model.norm_final(x)
    if "final" in want:
        hidden_states["final"] = x
    return model.head(x), hidden_states
