"""Mamba-2 (Dao and Gu, 2405.21060) as a forward pass over the rows of a draft tree (STree: Wu et al.,
2505.14969).

A state-space layer has no keys and values, but a state [heads, head_dim, state] and the last rows of a
short convolution. Verification reads them and never writes them. Row i of a tree reads its ancestors
through the decay along its path, exp(c_i - c_j), with c the sum of dt * A from the root; it reads the
committed text through exp(c_i) times the state. At commit the accepted rows advance the state, from the
values of x, dt and B that verification stored ("activation replay").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..checkpoints.weights import ModelError, ScaledWeights, Weights
from .tree_rows import Mixer, RowPositions, TreeRows


@dataclass(frozen=True)
class MambaState:
    """The state of a Mamba-2 layer after the committed text. conv [kernel - 1, channels]: inputs of the
    convolution at the last kernel - 1 tokens; ssm [heads, head_dim, state]: the SSM state."""

    conv: Tensor
    ssm: Tensor


@dataclass(frozen=True)
class MambaRows(TreeRows):
    """What verification stores of draft rows, enough to advance the state along any path of them. raw
    [rows, channels]: inputs of the convolution; x [rows, heads, head_dim]; dt [rows, heads]; elapsed [rows,
    heads]: sum of dt from the root to the row; b [rows, groups, state]."""

    raw: Tensor
    x: Tensor
    dt: Tensor
    elapsed: Tensor
    b: Tensor


@dataclass(frozen=True)
class MambaSizes:
    """Sizes of a Mamba-2 layer. eps: of its norm; dt_limit: lower and upper bound of dt; norm: the order of
    the output's gate and norm: "after" the gate, "before" it, "none" for a gate alone."""

    hidden: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    eps: float
    dt_limit: tuple[float, float]
    norm: str = "after"

    @property
    def inner(self) -> int:
        """Width of x: heads times head_dim."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state


def dt_limits(value: Any, name: str) -> tuple[float, float]:
    """Return the bounds of dt from config.json's time_step_limit; JSON spells infinity as {"__float__":
    "Infinity"}. Raises ModelError."""
    if value is None:
        return 0.0, float("inf")
    try:
        low, high = (float(one["__float__"] if isinstance(one, dict) else one) for one in value)
    except (TypeError, ValueError, KeyError):
        low, high = 1.0, 0.0
    if not 0 <= low <= high:
        raise ModelError(
            f"config.json of {name} gives a time_step_limit that is not two numbers in order",
            "config.time_step_limit",
        )
    return low, high


class Mamba2Mixer(Mixer):
    """A Mamba-2 layer as a Mixer (tree_rows.py), with the weights under the ``prefix`` ("...mixer." or
    "...mamba.").

    in_proj [2 * inner + 2 * groups * state + heads, hidden]; conv [channels, kernel]; a [heads], negative.
    """

    def __init__(self, weights: Weights | ScaledWeights, prefix: str, sizes: MambaSizes):
        self.sizes = sizes
        self.kernel = sizes.kernel
        d = sizes.hidden
        rows = sizes.inner + sizes.channels + sizes.heads
        self.in_proj, self.in_bias = (
            weights.get(f"{prefix}in_proj.weight", rows, d),
            weights.get_optional(f"{prefix}in_proj.bias", rows),
        )
        self.conv = weights.get(f"{prefix}conv1d.weight", sizes.channels, 1, sizes.kernel)[:, 0]
        self.conv_bias = weights.get_optional(f"{prefix}conv1d.bias", sizes.channels)
        self.dt_bias, self.d = (
            weights.get(f"{prefix}dt_bias", sizes.heads).float(),
            weights.get(f"{prefix}D", sizes.heads).float(),
        )
        self.a = -weights.get(f"{prefix}A_log", sizes.heads).float().exp()
        self.norm = weights.get(f"{prefix}norm.weight", sizes.inner) if sizes.norm != "none" else None
        self.out_proj = weights.get(f"{prefix}out_proj.weight", d, sizes.inner)
        self.out_bias = weights.get_optional(f"{prefix}out_proj.bias", d)

    def new_state(self) -> MambaState:
        """Return the state before any text: zeros."""
        sizes = self.sizes
        return MambaState(
            self.conv.new_zeros(sizes.kernel - 1, sizes.channels),
            self.dt_bias.new_zeros(sizes.heads, sizes.head_dim, sizes.state),
        )

    def advance(self, state: MambaState, rows: MambaRows, path: list[int]) -> MambaState:
        """Return the state after the accepted rows ``path``, from the stored values ("activation replay")."""
        raw, x, dt, _, b = (part[path] for part in vars(rows).values())
        total = dt.cumsum(0) * self.a  # [path, heads]
        weight = (total[-1] - total).exp() * dt
        added = torch.einsum("jh,jhp,jhn->hpn", weight, x, self._per_head(b))
        return MambaState(
            torch.cat([state.conv, raw])[len(path) :], state.ssm * total[-1].exp()[:, None, None] + added
        )

    def run(
        self, x: Tensor, state: MambaState, before: MambaRows | None, place: RowPositions
    ) -> tuple[Tensor, MambaRows]:
        """Return the outputs [n - lo, hidden] of draft rows lo..n, x [n - lo, hidden], and the values of
        all draft rows."""
        sizes = self.sizes
        inner, gn = sizes.inner, sizes.groups * sizes.state
        gate, raw, dt = F.linear(x, self.in_proj, self.in_bias).split(
            [inner, sizes.channels, sizes.heads], -1
        )
        all_raw = raw if before is None else torch.cat([before.raw, raw])
        window = torch.cat([state.conv, all_raw])[place.taps_of(sizes.kernel)]  # [n - lo, kernel, channels]
        mixed = torch.einsum("rkc,ck->rc", window, self.conv)
        mixed = F.silu(mixed if self.conv_bias is None else mixed + self.conv_bias)
        values, b, c = mixed.float().split([inner, gn, gn], -1)
        dt = F.softplus(dt.float() + self.dt_bias).clamp(*sizes.dt_limit)
        all_dt = dt if before is None else torch.cat([before.dt, dt])
        new = MambaRows(
            raw,
            values.view(-1, sizes.heads, sizes.head_dim),
            dt,
            place.sees.to(dt.dtype) @ all_dt,
            b.view(-1, sizes.groups, sizes.state),
        )
        rows = new.after(before)
        y = self._scan(new, rows, c.view(-1, sizes.groups, sizes.state), state.ssm, place.sees).reshape(
            -1, inner
        )
        return F.linear(self._gated(y, F.silu(gate.float())).to(x.dtype), self.out_proj, self.out_bias), rows

    def survival(self, rows: MambaRows) -> list[Tensor]:
        """Return, in a list of one, the share of the committed state that each row's decay leaves, [rows],
        averaged over heads."""
        return [(rows.elapsed * self.a).exp().mean(1)]

    def _gated(self, y: Tensor, gate: Tensor) -> Tensor:
        """Return outputs of the scan [rows, inner] with the gate and the norm applied."""
        if self.norm is None:
            return y * gate
        y = y if self.sizes.norm == "before" else y * gate
        grouped = y.view(-1, self.sizes.groups, self.sizes.inner // self.sizes.groups)
        y = (
            F.rms_norm(grouped, grouped.shape[-1:], None, self.sizes.eps).reshape(y.shape).to(self.norm.dtype)
            * self.norm
        )
        return y * gate if self.sizes.norm == "before" else y

    def _per_head(self, x: Tensor) -> Tensor:
        """Expand [rows, groups, state] to [rows, heads, state]."""
        return x.repeat_interleave(self.sizes.heads // self.sizes.groups, 1)

    def _scan(self, new: MambaRows, rows: MambaRows, c: Tensor, state: Tensor, sees: Tensor) -> Tensor:
        """Run the tree scan: return outputs [n - lo, heads, head_dim] of the new rows, from the state and
        all rows visible to them."""
        total, seen_total = (
            new.elapsed * self.a,
            rows.elapsed * self.a,
        )  # exponents: at most 0, and smaller with each step
        decay = (
            (total[:, None] - seen_total[None]).masked_fill(~sees[:, :, None], -torch.inf).exp()
        )  # -inf first: inf * 0 is NaN
        c = self._per_head(c)
        scores = torch.einsum("ihn,jhn->ijh", c, self._per_head(rows.b)) * decay * rows.dt
        read = torch.einsum("ijh,jhp->ihp", scores, rows.x)
        return (
            read + total.exp()[:, :, None] * torch.einsum("ihn,hpn->ihp", c, state) + self.d[:, None] * new.x
        )
