"""Forward pass of the Llama family with static shapes, so that one captured CUDA graph serves every round.

The inputs of a round are in fixed buffers: token ids, positions, slots, the number of committed rows, the
attention mask of the draft rows. A forward pass always runs as many rows as its bucket has; padding rows
attend only to themselves. Attention reads all slots of the buffer; the mask is computed on the device from
the slot map and the number of committed rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core import LazyScalar, token_tensor
from .cuda_graph_capture import WIDTH, CudaGraphs, copy_without_sync, mask_of, visibility_bias
from .llama import Llama


class Inputs:
    """Input buffers of one bucket. numbers [3 * rows + 1]: token ids, positions, slots, number of committed
    rows; bias: as ``visibility_bias`` returns it. ``put`` fills both without synchronising."""

    def __init__(self, rows: int, dtype: torch.dtype, device: torch.device):
        self.rows = rows
        self.numbers = torch.zeros(3 * rows + 1, dtype=torch.int64, device=device)
        self.bias = torch.zeros(rows, WIDTH + 2, dtype=dtype, device=device)
        self._shown: Any = None

    def put(
        self, ids: list[int], positions: Tensor, slots: list[int], past: int, sees: Tensor, lo: int
    ) -> None:
        """Copy the inputs of a pass into the fixed buffers.

        ids, positions [n]; slots [rows]; past: number of committed rows; sees: bool [n, lo + n], which
        draft rows each row attends to; lo: draft rows before this pass.
        """
        n, rows = len(ids), self.rows
        idle = [0] * (rows - n)
        known = [0 if type(token) is LazyScalar else token for token in ids]
        copy_without_sync(
            self.numbers, torch.tensor(known + idle + positions.tolist() + idle + [*slots, past])
        )
        if any(type(token) is LazyScalar for token in ids):
            self.numbers[:n].copy_(token_tensor(self.numbers.device, ids))
        if self._shown is not sees:  # tree shapes repeat from round to round
            copy_without_sync(self.bias, visibility_bias(rows, sees, lo, self.bias.dtype))
            self._shown = sees

    def split(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return token ids, positions and slots, each [rows], and the number of committed rows [1]."""
        ids, positions, slots, past = self.numbers.split([self.rows, self.rows, self.rows, 1])
        return ids, positions, slots, past


@dataclass
class StaticKVBuffer:
    """KV cache with fixed memory for one run. slots [layers, 2, kv_heads, slots, head_dim]; order [slots]:
    the position stored in each slot; rotation: of as many positions; inputs: input buffers by bucket;
    graphs: the CUDA graphs captured on these buffers. A buffer outlives its run, since the graphs refer to
    its memory."""

    slots: Tensor
    order: Tensor
    rotation: Tensor
    inputs: dict[int, Inputs] = field(default_factory=dict)
    graphs: CudaGraphs = field(default_factory=CudaGraphs)

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return self.order.shape[0]

    def set_order(self, positions: list[int]) -> None:
        """Copy the position of each slot, after the slot map changed, to the device."""
        copy_without_sync(self.order, torch.tensor(positions, dtype=self.order.dtype))


def new_kv_buffer(model: Llama, slots: int) -> StaticKVBuffer:
    """Return a KV buffer filled with zeros. Slots that no row may attend to must not hold NaN: their
    attention weight is 0, and 0 * NaN is NaN."""
    order = torch.arange(slots, dtype=torch.int32, device=model.device)
    return StaticKVBuffer(model.new_slots(slots).zero_(), order, model.rotations(slots)[:slots])


def forward(
    model: Llama, buffer: StaticKVBuffer, inputs: Inputs, want: frozenset[str], float64_attention: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run the forward pass on the inputs in the buffers. Return logits [rows, vocab] and the captured
    hidden states. No control flow depends on values.

    want: hidden states to capture; float64_attention: sum attention in double precision, so that the
    result, rounded to half precision, does not depend on the order of the slots.
    """
    ids, positions, where, past = inputs.split()
    x = model.embed(ids)
    rotation = buffer.rotation.index_select(0, positions)
    hidden_states = {}
    mask = mask_of(inputs.bias, buffer.order, past, model.group)
    mask = mask.double() if float64_attention else mask
    for i, block in enumerate(model.blocks):
        if f"layer:{i}" in want:
            hidden_states[f"layer:{i}"] = x
        x = model.attend(block, x, rotation, buffer.slots[i], where, mask)
        x = model.transform(block, x)
    x = model.norm_final(x)
    if "final" in want:
        hidden_states["final"] = x
    return model.head(x), hidden_states
