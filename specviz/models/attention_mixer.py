"""Softmax attention as a mixer over the rows of a draft tree, for hybrids: its state is the keys and values
of the committed text.

A commit makes new tensors, so a snapshot is a reference; hybrids have few such layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..checkpoints.weights import ScaledWeights, Weights
from .tree_rows import Mixer, RowPositions, TreeRows


@dataclass(frozen=True)
class KeysValues(TreeRows):
    """Keys (rotated) and values of softmax attention, both [rows, kv_heads, head_dim]: of the committed
    text, or of draft rows."""

    k: Tensor
    v: Tensor


class AttentionMixer(Mixer):
    """Softmax attention as a Mixer (tree_rows.py), with the weights under the ``prefix`` ("...self_attn.").

    rotary: how many of a head's numbers are rotated; theta: rotary base; out: name of the output matrix;
    eps: of the norms of queries and keys, where the checkpoint has them.
    """

    kernel = 1

    def __init__(
        self,
        weights: Weights | ScaledWeights,
        prefix: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rotary: int,
        theta: float,
        out: str = "o_proj",
        eps: float = 1e-5,
    ):
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.rotary = rotary
        sizes = {"q": heads, "k": kv_heads, "v": kv_heads}
        self.projections = [
            (
                weights.get(f"{prefix}{name}_proj.weight", count * head_dim, hidden),
                weights.get_optional(f"{prefix}{name}_proj.bias", count * head_dim),
            )
            for name, count in sizes.items()
        ]
        self.o_proj = weights.get(f"{prefix}{out}.weight", hidden, heads * head_dim)
        self.o_bias = weights.get_optional(f"{prefix}{out}.bias", hidden)
        self.norms, self.eps = (
            [weights.get_optional(f"{prefix}{name}_layernorm.weight", head_dim) for name in "qk"],
            eps,
        )
        self.inverse = theta ** -(torch.arange(0, rotary, 2, device=self.o_proj.device).float() / rotary)

    def new_state(self) -> KeysValues:
        """Return the state before any text: no keys and values."""
        nothing = self.o_proj.new_zeros(0, self.kv_heads, self.head_dim)
        return KeysValues(nothing, nothing)

    def advance(self, state: KeysValues, rows: KeysValues, path: list[int]) -> KeysValues:
        """Return the state with keys and values of the accepted rows ``path`` appended."""
        return state.then(KeysValues(rows.k[path], rows.v[path]))

    def run(
        self, x: Tensor, state: KeysValues, before: KeysValues | None, place: RowPositions
    ) -> tuple[Tensor, KeysValues]:
        """Return the outputs [n - lo, hidden] of draft rows lo..n, x [n - lo, hidden], and keys and values
        of all draft rows."""
        q, k, v = (
            F.linear(x, *projection).view(len(x), -1, self.head_dim) for projection in self.projections
        )
        q, k = (
            part if norm is None else F.rms_norm(part, (self.head_dim,), norm, self.eps)
            for part, norm in zip((q, k), self.norms)
        )
        q, k = (
            self._rotated(q, place.past + place.new_depths),
            self._rotated(k, place.past + place.new_depths),
        )
        rows = KeysValues(k, v).after(before)
        seen = state.then(rows)
        mask = torch.cat([place.sees.new_ones(len(x), len(state.k)), place.sees], 1)
        k, v = (
            part.repeat_interleave(self.heads // self.kv_heads, 1).transpose(0, 1)
            for part in (seen.k, seen.v)
        )
        mixed = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k[None], v[None], attn_mask=mask)[0]
        return F.linear(mixed.transpose(0, 1).reshape(len(x), -1), self.o_proj, self.o_bias), rows

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = (positions[:, None].float() * self.inverse)[:, None]
        cos, sin = angles.cos(), angles.sin()
        turned, rest = x.float().split([self.rotary, self.head_dim - self.rotary], -1)
        low, high = turned.chunk(2, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], -1).to(x.dtype)
