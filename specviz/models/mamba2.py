"""Mamba-2 (Dao and Gu, 2405.21060) as a forward over the rows of a draft tree (STree: Wu et al., 2505.14969).

A state-space layer has no keys and values: it carries a state [heads, head_dim, state] and the last rows of a short convolution.
Verification reads them and never writes: row i of a tree sees its ancestors through the decay along its path, exp(c_i - c_j) with c the
sum of dt * A from the root, and the committed text through exp(c_i) times the state. After a verdict the accepted rows alone advance
the state, from the x, dt and B that the verification has left ("activation replay").
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .checkpoint_sizes import check_config, check_weights
from .weights import ModelError, Weights, read_json

UNBOUNDED = 32768  # tokens: a recurrent state has no context limit, so this one only bounds a run
SIZES = ("hidden_size", "num_hidden_layers", "vocab_size", "num_heads", "head_dim", "state_size", "n_groups", "conv_kernel")


def why_not(config: dict[str, Any]) -> str | None:
    """Return a sentence when this forward cannot run a checkpoint with that config.json, else None."""
    if config.get("model_type") != "mamba2":
        return f"the state-space forward runs mamba2, not {str(config.get('model_type'))[:40]}"
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        return f"the state-space forward has no activation {str(config['hidden_act'])[:40]!r}"
    if config.get("quantization_config"):
        return "the state-space forward reads no quantised weights"
    return None


def _limits(value: Any, name: str) -> tuple[float, float]:
    """Return the bounds of dt; JSON spells infinity as {"__float__": "Infinity"}. Raises ModelError."""
    if value is None:
        return 0.0, float("inf")
    try:
        low, high = (float(one["__float__"] if isinstance(one, dict) else one) for one in value)
    except (TypeError, ValueError, KeyError):
        low, high = 1.0, 0.0
    if not 0 <= low <= high:
        raise ModelError(f"config.json of {name} gives a time_step_limit that is not two numbers in order",
                         "config.time_step_limit")
    return low, high


@dataclass(frozen=True)
class LayerState:
    """The recurrent state of a layer after the committed text. conv: inputs of the convolution at the last kernel - 1 tokens,
    [kernel - 1, channels]; ssm: the SSM state, [heads, head_dim, state]."""

    conv: Tensor
    ssm: Tensor


@dataclass(frozen=True)
class LayerRows:
    """Values of a layer for scratch rows, enough to advance its state along any path of them. raw [rows, channels]: input of the
    convolution; x [rows, heads, head_dim]; dt [rows, heads]; elapsed [rows, heads]: sum of dt from the root to the row; b [rows,
    groups, state]."""

    raw: Tensor
    x: Tensor
    dt: Tensor
    elapsed: Tensor
    b: Tensor

    def first(self, count: int) -> LayerRows:
        return LayerRows(*(part[:count] for part in vars(self).values()))

    def then(self, more: LayerRows) -> LayerRows:
        return LayerRows(*(torch.cat(pair) for pair in zip(vars(self).values(), vars(more).values())))


@dataclass(frozen=True)
class Layer:
    """The weights of one layer. in_proj [2 * inner + 2 * groups * state + heads, hidden]; conv [channels, kernel]; a [heads], negative."""

    norm: Tensor
    in_proj: Tensor
    in_bias: Tensor | None
    conv: Tensor
    conv_bias: Tensor | None
    dt_bias: Tensor
    a: Tensor
    d: Tensor
    gated_norm: Tensor
    out_proj: Tensor
    out_bias: Tensor | None


class Mamba2:
    """Weights of a Hugging Face folder, and the forward. float32 on a CPU, bfloat16 weights elsewhere; states are float32.

    Raises ModelError for a checkpoint that cannot be used.
    """

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype | None = None):
        folder = Path(folder)
        config = read_json(folder, "config.json")
        check_config(config, folder.name)
        reason = why_not(config)
        if reason:
            raise ModelError(f"{folder.name}: {reason}", "forward.unsupported")
        self.device = torch.device(device)
        self.dtype = dtype or (torch.bfloat16 if self.device.type == "cuda" else torch.float32)
        self.folder, self.name, self.config = folder, folder.name, config
        self._measure(config)
        with torch.inference_mode():
            weights = Weights(folder, self.device, self.dtype)
            check_weights(config, weights, folder.name, self.dtype.itemsize, self.device)
            self._load(weights)

    def _measure(self, config: dict[str, Any]) -> None:
        missing = [name for name in SIZES if type(config.get(name)) is not int or config[name] < 1]
        if missing:
            raise ModelError(f"config.json of {self.name} gives no size {missing[0]}", "config.lacks")
        self.hidden, self.layers, self.vocab, self.heads, self.head_dim, self.state, self.groups, self.kernel_size = \
            (config[name] for name in SIZES)
        self.inner = self.heads * self.head_dim
        if int(config.get("expand", 2) * self.hidden) != self.inner or self.heads % self.groups or self.inner % self.groups:
            raise ModelError(f"config.json of {self.name} gives sizes that do not fit together", "config.sizes")
        self.channels = self.inner + 2 * self.groups * self.state
        self.eps, self.context = config.get("layer_norm_epsilon", 1e-5), UNBOUNDED
        self.dt_limit = _limits(config.get("time_step_limit"), self.name)
        self.kernel = "plain"

    def _load(self, weights: Weights) -> None:
        d = self.hidden
        self.embedding = weights.get("backbone.embeddings.weight", self.vocab, d)
        tied = bool(self.config.get("tie_word_embeddings", False)) or "lm_head.weight" not in weights
        self.output = self.embedding if tied else weights.get("lm_head.weight", self.vocab, d)
        self.norm_final = weights.get("backbone.norm_f.weight", d)
        self.blocks = [self._read(weights, f"backbone.layers.{i}.") for i in range(self.layers)]
        self.parameters = weights.count

    def _read(self, weights: Weights, at: str) -> Layer:
        d, mixer, rows = self.hidden, f"{at}mixer.", self.inner + self.channels + self.heads
        return Layer(
            norm=weights.get(f"{at}norm.weight", d),
            in_proj=weights.get(f"{mixer}in_proj.weight", rows, d), in_bias=weights.maybe(f"{mixer}in_proj.bias", rows),
            conv=weights.get(f"{mixer}conv1d.weight", self.channels, 1, self.kernel_size)[:, 0],
            conv_bias=weights.maybe(f"{mixer}conv1d.bias", self.channels),
            dt_bias=weights.get(f"{mixer}dt_bias", self.heads).float(), a=-weights.get(f"{mixer}A_log", self.heads).float().exp(),
            d=weights.get(f"{mixer}D", self.heads).float(), gated_norm=weights.get(f"{mixer}norm.weight", self.inner),
            out_proj=weights.get(f"{mixer}out_proj.weight", d, self.inner), out_bias=weights.maybe(f"{mixer}out_proj.bias", d))

    # --- states ----------------------------------------------------------------------------------------------------
    def new_states(self) -> list[LayerState]:
        """Return the states before any text."""
        return [LayerState(torch.zeros(self.kernel_size - 1, self.channels, dtype=self.dtype, device=self.device),
                           torch.zeros(self.heads, self.head_dim, self.state, device=self.device)) for _ in range(self.layers)]

    def advance(self, layer: int, state: LayerState, rows: LayerRows, path: list[int]) -> LayerState:
        """Return the layer's state after the rows of ``path``, in order."""
        raw, x, dt, _, b = (part[path] for part in vars(rows).values())
        total = dt.cumsum(0) * self.blocks[layer].a  # [path, heads]
        weight = (total[-1] - total).exp() * dt
        added = torch.einsum("jh,jhp,jhn->hpn", weight, x, self._per_head(b))
        ssm = state.ssm * total[-1].exp()[:, None, None] + added
        return LayerState(torch.cat([state.conv, raw])[len(path):], ssm)

    def _per_head(self, x: Tensor) -> Tensor:
        """Expand [rows, groups, state] to [rows, heads, state]."""
        return x.repeat_interleave(self.heads // self.groups, 1)

    # --- the forward -----------------------------------------------------------------------------------------------
    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.embedding)

    def norm(self, states: Tensor) -> Tensor:
        """Return states [rows, hidden] after the last norm."""
        return F.rms_norm(states, (self.hidden,), self.norm_final, self.eps)

    def head(self, states: Tensor) -> Tensor:
        """Return logits [rows, vocab] of states after the last norm."""
        return F.linear(states, self.output)

    def run_layer(self, layer: int, hidden: Tensor, state: LayerState, before: LayerRows | None, sees: Tensor,
                  taps: Tensor) -> tuple[Tensor, LayerRows]:
        """Run one layer over rows lo..n of a tree, whose rows before lo are ``before``.

        hidden [n - lo, hidden]; sees [n - lo, n]: ancestors of each row and itself; taps [n - lo, kernel]: index of each row's
        convolution inputs, over the committed window followed by all rows. Returns the states after the layer and its rows.
        """
        block, inner, gn = self.blocks[layer], self.inner, self.groups * self.state
        gate, raw, dt = F.linear(F.rms_norm(hidden, (self.hidden,), block.norm, self.eps), block.in_proj, block.in_bias).split(
            [inner, self.channels, self.heads], -1)
        all_raw = raw if before is None else torch.cat([before.raw, raw])
        window = torch.cat([state.conv, all_raw])[taps]  # [n - lo, kernel, channels]
        mixed = torch.einsum("rkc,ck->rc", window, block.conv)
        mixed = F.silu(mixed if block.conv_bias is None else mixed + block.conv_bias)
        x, b, c = mixed.float().split([inner, gn, gn], -1)
        dt = F.softplus(dt.float() + block.dt_bias).clamp(*self.dt_limit)
        all_dt = dt if before is None else torch.cat([before.dt, dt])
        new = LayerRows(raw, x.view(-1, self.heads, self.head_dim), dt, sees.to(dt.dtype) @ all_dt, b.view(-1, self.groups, self.state))
        rows = new if before is None else before.then(new)
        y = self._scan(block, new, rows, c.view(-1, self.groups, self.state), state.ssm, sees)
        y = y.reshape(-1, inner) * F.silu(gate.float())
        grouped = y.view(-1, self.groups, inner // self.groups)
        y = F.rms_norm(grouped, grouped.shape[-1:], None, self.eps).reshape(-1, inner).to(hidden.dtype) * block.gated_norm
        return hidden + F.linear(y, block.out_proj, block.out_bias), rows

    def _scan(self, block: Layer, new: LayerRows, rows: LayerRows, c: Tensor, state: Tensor, sees: Tensor) -> Tensor:
        """Run the tree scan: return outputs [n - lo, heads, head_dim] of the new rows, from the state and all rows visible to
        them."""
        total, seen_total = new.elapsed * block.a, rows.elapsed * block.a  # exponents: at most 0, and smaller with each step
        decay = (total[:, None] - seen_total[None]).masked_fill(~sees[:, :, None], -torch.inf).exp()  # -inf first: inf * 0 is NaN
        c = self._per_head(c)
        scores = torch.einsum("ihn,jhn->ijh", c, self._per_head(rows.b)) * decay * rows.dt
        read = torch.einsum("ijh,jhp->ihp", scores, rows.x)
        return read + total.exp()[:, :, None] * torch.einsum("ihn,hpn->ihp", c, state) + block.d[:, None] * new.x
