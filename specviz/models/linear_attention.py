"""Linear attention with local groups as a Mixer over the rows of a draft tree (You et al. 2406.07368).

Queries and keys are rotated and divided by their norms. A row attends to rows of its own group of positions
with the squared relu of the cosine, and to rows of earlier groups with the cosine times a learned factor;
nothing is normalised. A causal convolution over the values is added. The linear part needs one sum of k v^T
over all completed groups, so the state does not grow with the text.

The published code lets a draft that crosses a group border lose the group that it completes. Here the group
of a row is that of its position, for rows of the tree and committed rows alike, so a verified tree equals
plain decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..checkpoints.weights import Weights
from .tree_rows import Mixer, RowPositions, TreeRows


@dataclass(frozen=True)
class LinearState:
    """The state of grouped linear attention after the committed text. sums [kv_heads, head_dim, head_dim]:
    k v^T over all completed groups; k, v [rows, kv_heads, head_dim]: of the group that is not complete;
    window [kernel - 1, kv_heads, head_dim]: the last values."""

    sums: Tensor
    k: Tensor
    v: Tensor
    window: Tensor


@dataclass(frozen=True)
class LinearRows(TreeRows):
    """Keys (rotated, of length 1) and values of draft rows, both [rows, kv_heads, head_dim]."""

    k: Tensor
    v: Tensor


class LinearAttentionMixer(Mixer):
    """Grouped linear attention as a Mixer (tree_rows.py), with the weights under the ``prefix``
    ("...self_attn."). factor: weight of the linear part; taps [heads, kernel]: the convolution."""

    def __init__(
        self,
        weights: Weights,
        prefix: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        group: int,
        kernel: int,
        theta: float,
    ):
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.group = group
        self.kernel = kernel
        self.q_proj = weights.get(f"{prefix}q_proj.weight", heads * head_dim, hidden)
        self.k_proj, self.v_proj = (
            weights.get(f"{prefix}{name}_proj.weight", kv_heads * head_dim, hidden) for name in "kv"
        )
        self.o_proj = weights.get(f"{prefix}o_proj.weight", hidden, heads * head_dim)
        self.factor = weights.get(f"{prefix}global_factor", 1).float()
        self.taps = weights.get(f"{prefix}value_conv", heads, 1, kernel)[:, 0]
        self.inverse = theta ** -(torch.arange(0, head_dim, 2, device=self.taps.device).float() / head_dim)

    def new_state(self) -> LinearState:
        """Return the state before any text."""
        nothing = self.taps.new_zeros(self.kernel - 1, self.kv_heads, self.head_dim)
        sums = self.factor.new_zeros(self.kv_heads, self.head_dim, self.head_dim)  # float32, as the keys are
        return LinearState(sums, sums.new_zeros(0, self.kv_heads, self.head_dim), nothing[:0], nothing)

    def advance(self, state: LinearState, rows: LinearRows, path: list[int]) -> LinearState:
        """Return the state after the accepted rows ``path``; groups that they complete are added to the
        sums."""
        k, v = torch.cat([state.k, rows.k[path]]), torch.cat([state.v, rows.v[path]])
        complete, sums = len(k) // self.group * self.group, state.sums
        for first in range(0, complete, self.group):
            part = slice(first, first + self.group)
            sums = sums + torch.einsum("jhd,jhe->hde", k[part].float(), v[part].float())
        return LinearState(
            sums, k[complete:], v[complete:], torch.cat([state.window, rows.v[path]])[len(path) :]
        )

    def run(
        self, x: Tensor, state: LinearState, before: LinearRows | None, place: RowPositions
    ) -> tuple[Tensor, LinearRows]:
        """Return the outputs [n - lo, hidden] of draft rows lo..n, x [n - lo, hidden], and keys and values
        of all draft rows."""
        q, k, v = (
            F.linear(x, weight).view(len(x), -1, self.head_dim)
            for weight in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = (
            self._rotated(q, place.past + place.new_depths),
            self._rotated(k, place.past + place.new_depths),
        )
        rows = LinearRows(k, v).after(before)
        local, earlier = self._sides(len(state.k), place)
        scores = torch.einsum("ihd,jhd->hij", q, self._per_head(torch.cat([state.k, rows.k])))
        weights = scores.relu().square() * local + self.factor * scores * earlier
        mixed = torch.einsum("hij,jhd->ihd", weights, self._per_head(torch.cat([state.v, rows.v])).float())
        mixed = mixed + self.factor * torch.einsum(
            "ihd,hde->ihe", q, state.sums.repeat_interleave(self.heads // self.kv_heads, 0)
        )
        window = torch.cat([state.window, rows.v])[
            place.taps_of(self.kernel)
        ]  # [n - lo, kernel, kv_heads, head_dim]
        mixed = mixed + torch.einsum(
            "rkhd,hk->rhd", window.repeat_interleave(self.heads // self.kv_heads, 2), self.taps
        )
        return F.linear(mixed.reshape(len(x), -1).to(x.dtype), self.o_proj), rows

    def _sides(self, running: int, place: RowPositions) -> tuple[Tensor, Tensor]:
        """Return which of the ``running`` committed rows and of all tree rows each new row attends to in
        its own group, and which in earlier ones; both [n - lo, running + n]."""
        committed = torch.arange(place.past - running, place.past, device=place.depths.device)
        group = torch.cat([committed, place.past + place.depths]) // self.group
        own = (place.past + place.new_depths) // self.group
        sees = torch.cat([place.sees.new_ones(len(own), running), place.sees], 1)
        return sees & (group == own[:, None]), sees & (group < own[:, None])

    def _per_head(self, x: Tensor) -> Tensor:
        """Expand [rows, kv_heads, head_dim] to [rows, heads, head_dim]."""
        return x.repeat_interleave(self.heads // self.kv_heads, 1)

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x [rows, heads, head_dim] rotated by its positions and divided by its norm, in float32."""
        angles = (positions[:, None].float() * self.inverse)[:, None]
        cos, sin = angles.cos(), angles.sin()
        low, high = x.float().chunk(2, -1)
        return F.normalize(torch.cat([low * cos - high * sin, high * cos + low * sin], -1), dim=-1, eps=1e-6)
