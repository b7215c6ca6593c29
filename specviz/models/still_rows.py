"""A head's rows with shapes that stay, so that one recording of its layers (a CUDA graph) serves every round: the twin of
static_llama.py for what drafts beside a target. Rows of a text lie in order and a scratch behind them, so there is no map of slots.
"""
from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch import Tensor

from .recorded import BUCKETS, WIDTH, Recordings, bucket_of, mask_of, seen_by, send

SPARE = 4  # rooms kept for the next runs
SMALLEST = 256  # slots; larger rooms are twice as large each


@dataclass
class StillRoom:
    """Slots [layers, 2, kv_heads, slots, head_dim], the position of each, rotations of positions, what rows come in by, and what was
    recorded on all of that. It outlives its run."""

    slots: Tensor
    order: Tensor
    turn: Tensor
    inputs: dict[Any, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    recorded: Recordings = field(default_factory=Recordings)

    @property
    def capacity(self) -> int:
        return self.order.shape[0]


class Rooms:
    """Rooms over one net, handed from run to run."""

    def __init__(self, net: Any):
        self.net = net
        self._spare: list[StillRoom] = []
        self._lock = threading.Lock()

    def take(self, slots: int, positions: int) -> StillRoom:
        """A room of at least so many slots and rotations, one that an earlier run left where there is one."""
        with self._lock:
            fits = [room for room in self._spare if room.capacity >= slots and len(room.turn) >= positions]
            if fits:
                room = min(fits, key=lambda room: room.capacity)
                self._spare = [spare for spare in self._spare if spare is not room]
                return room
        capacity = doubled(slots)
        order = torch.arange(capacity, dtype=torch.int32, device=self.net.device)
        return StillRoom(self.net.new_slots(capacity).zero_(), order, self.net.turned_to(doubled(max(positions, capacity))))

    def give(self, room: StillRoom) -> None:
        with self._lock:
            self._spare = [*self._spare, room][-SPARE:]


def doubled(least: int) -> int:
    size = SMALLEST
    while size < least:
        size *= 2
    return size


def holds(rows: int, scratch: int) -> bool:
    """Whether so many rows at the end of a scratch of that many make a pass of fixed shapes."""
    return rows <= BUCKETS[-1] and scratch <= WIDTH - BUCKETS[-1] + rows


def run(net: Any, room: StillRoom, x: Tensor, first: int, past: int, depths: list[int], sees: Tensor,
        work: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor | None], name: str) -> Tensor | None:
    """``work(x, turn, slots, where, mask)`` over rows x [n, width] in their bucket; its first n rows.

    past: text rows held; depths [n]: how far behind them each row stands; sees [n, scratch], bool, its own row included; first: the
    position of row 0; name: of the work, for what is recorded.
    """
    n, scratch = sees.shape
    bucket, lo = bucket_of(n), scratch - n
    key = name, bucket, x.shape[1]
    if key not in room.inputs:
        room.inputs[key] = (torch.zeros(bucket, x.shape[1], dtype=net.dtype, device=net.device),
                            torch.zeros(2 * bucket + 1, dtype=torch.int64, device=net.device),
                            torch.zeros(bucket, WIDTH + 2, dtype=net.dtype, device=net.device))
    rows, numbers, bias = room.inputs[key]
    rows[:n].copy_(x)
    at = past + lo
    send(numbers, torch.tensor([first + past + depth for depth in depths] + [0] * (bucket - n) + [*range(at, at + bucket), past]))
    send(bias, seen_by(bucket, sees, lo, net.dtype))

    def still() -> Tensor | None:
        positions, where, held = numbers.split([bucket, bucket, 1])
        return work(rows, room.turn.index_select(0, positions), room.slots, where, mask_of(bias, room.order, held, net.group))

    if net.device.type != "cuda":
        out = still()
    else:
        out = room.recorded.run(key, still, net.device)
    return None if out is None else out[:n].clone() if net.device.type == "cuda" else out[:n]
