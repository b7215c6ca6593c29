"""Rows of a trained draft head with static shapes, so that one captured CUDA graph of its layers serves
every round: the counterpart of static_llama.py for drafters. Text rows are in order, followed by draft
rows, so no slot map is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .cuda_graph_capture import (
    BUCKETS,
    WIDTH,
    CudaGraphs,
    bucket_of,
    copy_without_sync,
    mask_of,
    visibility_bias,
)

SPARE = 4  # buffers kept for the next runs
SMALLEST = 256  # slots; larger buffers double


@dataclass
class StaticRowBuffer:
    """Fixed buffers of a head with static shapes: KV slots [layers, 2, kv_heads, slots, head_dim], the
    position of each slot, rotations, input buffers, and the CUDA graphs captured on them. Later runs reuse
    it."""

    slots: Tensor
    order: Tensor
    rotation: Tensor
    inputs: dict[Any, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    graphs: CudaGraphs = field(default_factory=CudaGraphs)

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return self.order.shape[0]


class StaticRowBufferPool:
    """Buffers for the layers of one head (``net``), reused by later runs."""

    def __init__(self, net: Any):
        self.net = net
        self._spare: list[StaticRowBuffer] = []
        self._lock = threading.Lock()

    def take_buffer(self, slots: int, positions: int) -> StaticRowBuffer:
        """Return a buffer of at least so many slots and positions; one of an earlier run, with its captured
        graphs, if there is one."""
        with self._lock:
            fits = [
                buffer
                for buffer in self._spare
                if buffer.capacity >= slots and len(buffer.rotation) >= positions
            ]
            if fits:
                buffer = min(fits, key=lambda buffer: buffer.capacity)
                self._spare = [spare for spare in self._spare if spare is not buffer]
                return buffer
        capacity = next_capacity(slots)
        order = torch.arange(capacity, dtype=torch.int32, device=self.net.device)
        return StaticRowBuffer(
            self.net.new_slots(capacity).zero_(),
            order,
            self.net.rotations_to(next_capacity(max(positions, capacity))),
        )

    def return_buffer(self, buffer: StaticRowBuffer) -> None:
        """Give a buffer back for later runs."""
        with self._lock:
            self._spare = [*self._spare, buffer][-SPARE:]


def next_capacity(min_slots: int) -> int:
    """Return the smallest buffer size of at least ``min_slots`` slots: SMALLEST times a power of two."""
    size = SMALLEST
    while size < min_slots:
        size *= 2
    return size


def fits_bucket(rows: int, draft_rows: int) -> bool:
    """Return whether a pass over the last ``rows`` of ``draft_rows`` draft rows can run with static shapes:
    whether there is a bucket for its rows and the mask is wide enough."""
    return rows <= BUCKETS[-1] and draft_rows <= WIDTH - BUCKETS[-1] + rows


def run(
    net: Any,
    buffer: StaticRowBuffer,
    x: Tensor,
    first: int,
    past: int,
    depths: list[int],
    sees: Tensor,
    work: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor | None],
    name: str,
) -> Tensor | None:
    """Run ``work(x, rotation, slots, indices, mask)`` over draft rows x [n, width], padded to their bucket;
    return the first n rows of its result.

    past: number of text rows; depths [n]: distance of each row from the last text row; sees: bool [n, draft
    rows], which ones each row attends to, its own included; first: position of the first text row; name:
    key of the captured graph.
    """
    n, draft_rows = sees.shape
    bucket, lo = bucket_of(n), draft_rows - n
    assert bucket is not None  # ``holds`` was asked
    key = name, bucket, x.shape[1]
    if key not in buffer.inputs:
        buffer.inputs[key] = (
            torch.zeros(bucket, x.shape[1], dtype=net.dtype, device=net.device),
            torch.zeros(2 * bucket + 1, dtype=torch.int64, device=net.device),
            torch.zeros(bucket, WIDTH + 2, dtype=net.dtype, device=net.device),
        )
    rows, numbers, bias = buffer.inputs[key]
    rows[:n].copy_(x)
    at = past + lo
    positions = [first + past + depth for depth in depths] + [0] * (bucket - n)
    copy_without_sync(numbers, torch.tensor([*positions, *range(at, at + bucket), past]))
    copy_without_sync(bias, visibility_bias(bucket, sees, lo, net.dtype))

    def static() -> Tensor | None:
        positions, where, held = numbers.split([bucket, bucket, 1])
        return work(
            rows,
            buffer.rotation.index_select(0, positions),
            buffer.slots,
            where,
            mask_of(bias, buffer.order, held, net.group),
        )

    if net.device.type != "cuda":
        out = static()
    else:
        out = buffer.graphs.run(key, static, net.device)
    return None if out is None else out[:n].clone() if net.device.type == "cuda" else out[:n]
