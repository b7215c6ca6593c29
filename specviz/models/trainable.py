"""Networks of transformers with other mixers, for training: a Llama with linear attention, and a Bamba with
a scan that is fast on a CPU. Inference has its own forward pass over the rows of a draft tree
(models/recurrent.py); tests compare the two.

Imported lazily: importing it imports transformers, and registers ``linear_llama`` with its automatic classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, BambaForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.bamba.modeling_bamba import BambaMixer
from transformers.models.llama.modeling_llama import LlamaAttention, apply_rotary_pos_emb

from ..checkpoints.weights import ModelError, Weights

CHUNK = 64  # positions of a chunk of the scan


class LinearLlamaConfig(LlamaConfig):
    """Configuration of a Llama whose attention is local within groups and linear across them. group:
    positions of a group; conv: taps of the convolution over the values, the position itself included."""

    model_type = "linear_llama"
    group: int = 32
    conv: int = 15


class LinearAttention(LlamaAttention):
    """Linear attention with local groups (You et al. 2406.07368), an nn.Module: squared relu of cosines
    within a group, ``global_factor`` times the cosines across groups, a causal convolution over the values,
    and no normaliser."""

    def __init__(self, config: LinearLlamaConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.group, heads = config.group, config.num_attention_heads
        self.global_factor = nn.Parameter(torch.full((1,), 0.005))
        self.value_conv = nn.Parameter(
            torch.zeros(heads, 1, config.conv)
        )  # three axes, as a depthwise convolution stores them

    def forward(
        self, hidden_states: Tensor, position_embeddings: Any = None, **_: Any
    ) -> tuple[Tensor, None]:
        """Return (outputs [batch, length, hidden], None) for whole texts, hidden_states [batch, length,
        hidden]."""
        batch, length = hidden_states.shape[:2]
        q, k, v = (
            proj(hidden_states).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        k, v = (x.repeat_interleave(self.num_key_value_groups, 1) for x in (k, v))
        q, k = (F.normalize(x.float(), dim=-1, eps=1e-6).to(v.dtype) for x in (q, k))
        mixed = grouped_linear_attention(q, k, v, self.global_factor, self.group) + shifted_sum(
            v, self.value_conv[:, :, None].to(v.dtype)
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1)), None


def grouped_linear_attention(q: Tensor, k: Tensor, v: Tensor, factor: Tensor, group: int) -> Tensor:
    """Return squared relu attention within groups plus ``factor`` times linear attention to earlier groups;
    all tensors [batch, heads, length, head_dim]."""
    length = q.shape[2]
    q, k, v = (F.pad(x, (0, 0, 0, -length % group)).unflatten(2, (-1, group)) for x in (q, k, v))
    local = (q @ k.mT).relu().square().tril() @ v
    sums = k.mT @ v  # [batch, heads, groups, head_dim, head_dim]
    earlier = F.pad(sums.float(), (0, 0, 0, 0, 1, -1)).cumsum(2)
    return (local + factor.to(q.dtype) * (q @ earlier.to(q.dtype))).flatten(2, 3)[:, :, :length]


def shifted_sum(x: Tensor, taps: Tensor) -> Tensor:
    """Return a causal depthwise convolution of x [..., length, width]. taps [..., kernel]: the position
    itself last; their other axes broadcast with x. A sum of shifted rows is several times as fast on a
    processor as a grouped convolution."""
    kernel, length = taps.shape[-1], x.shape[-2]
    x = F.pad(x, (0, 0, kernel - 1, 0))
    return sum(
        (x[..., i : i + length, :] * taps[..., i] for i in range(1, kernel)),
        x[..., :length, :] * taps[..., 0],
    )


class LinearLlamaForCausalLM(LlamaForCausalLM):
    """LlamaForCausalLM with linear attention in every layer."""

    config_class = LinearLlamaConfig

    def __init__(self, config: LinearLlamaConfig):
        super().__init__(config)
        for index, layer in enumerate(self.model.layers):
            layer.self_attn = LinearAttention(config, index)
        self.post_init()


class ScannedMixer(BambaMixer):
    """Bamba's Mamba-2 mixer with a chunked scan (Dao and Gu, 2405.21060) of a few matrix products. It keeps
    no cache."""

    def forward(self, hidden_states: Tensor, **_: Any) -> Tensor:
        """Return the outputs [batch, length, hidden] for whole texts, hidden_states [batch, length,
        hidden]."""
        batch, length = hidden_states.shape[:2]
        sizes: Any = (
            self.n_groups,
            self.num_heads,
            self.ssm_state_size,
            self.time_step_limit,
        )  # all set, whatever the types say
        groups, heads, state, limits = sizes
        inner, gn = self.intermediate_size, groups * state
        gate, raw, dt = self.in_proj(hidden_states).split([inner, self.conv_dim, heads], -1)
        mixed = shifted_sum(raw, self.conv1d.weight[:, 0].to(raw.dtype))
        mixed = mixed if self.conv1d.bias is None else mixed + self.conv1d.bias.to(raw.dtype)
        x, b, c = F.silu(mixed).split([inner, gn, gn], -1)
        dt = F.softplus(dt.float() + self.dt_bias.float()).clamp(*limits)
        y = scan(
            x.view(batch, length, heads, -1),
            dt,
            -self.A_log.float().exp(),
            b.view(batch, length, groups, -1),
            c.view(batch, length, groups, -1),
            self.D,
        )
        return self.out_proj(self.norm(y.reshape(batch, length, inner), gate).to(hidden_states.dtype))


def scan(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Return the outputs y [batch, length, heads, head_dim] of the recurrence h = exp(dt a) h + dt x b^T, y
    = h c + d x.

    x [batch, length, heads, head_dim]; dt [batch, length, heads]; a, d [heads]; b, c [batch, length,
    groups, state].
    """
    batch, length, heads, width = x.shape
    pad = -length % CHUNK
    x, dt, b, c = (F.pad(part, (0, 0) * (part.ndim - 2) + (0, pad)) for part in (x, dt, b, c))
    x, dt, b, c = (part.unflatten(1, (-1, CHUNK)) for part in (x, dt, b, c))  # [batch, chunks, chunk, ...]
    b, c = (part.repeat_interleave(heads // part.shape[3], 3) for part in (b, c))
    total = (dt * a).cumsum(2).transpose(2, 3)  # [batch, chunks, heads, chunk]
    decay = (
        (total[..., :, None] - total[..., None, :])
        .masked_fill(~torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril(), -torch.inf)
        .exp()
    )
    xdt = (x * dt[..., None].to(x.dtype)).transpose(2, 3)  # [batch, chunks, heads, chunk, head_dim]
    b, c = b.transpose(2, 3), c.transpose(2, 3)
    y = ((c @ b.mT) * decay.to(x.dtype)) @ xdt
    left = (total[..., -1:] - total).exp()[..., None].to(x.dtype) * b
    added = left.mT @ xdt  # [batch, chunks, heads, state, head_dim]: what each chunk adds
    kept = total[..., -1].exp()[..., None, None]
    state = torch.zeros_like(added[:, 0])
    entering = []
    for chunk in range(added.shape[1]):
        entering.append(state)
        state = state * kept[:, chunk].to(x.dtype) + added[:, chunk]
    y = y + total.exp()[..., None].to(x.dtype) * (c @ torch.stack(entering, 1))
    return (y.transpose(2, 3) + d.to(x.dtype)[:, None] * x).flatten(1, 2)[:, :length]


def with_scanned_mixers(model: BambaForCausalLM) -> BambaForCausalLM:
    """Replace the model's Mamba-2 mixers by ScannedMixers with the same parameters; return the model."""
    layers: Any = model.model.layers
    for index, layer in enumerate(layers):
        if hasattr(layer, "mamba"):
            mixer = ScannedMixer(model.config, index)
            mixer.load_state_dict(layer.mamba.state_dict())
            layer.mamba = mixer
    return model


def open_trained(folder: Path, config: Any, dtype: torch.dtype) -> Any:
    """Return the transformers network of a folder with linear attention or Bamba's layers, whose matrices
    may be stored in MXINT8. Raises ModelError."""
    model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    model = with_scanned_mixers(model) if isinstance(model, BambaForCausalLM) else model
    stored = Weights(folder, torch.device("cpu"), torch.float32)
    shapes = {name: weight.shape for name, weight in model.state_dict().items() if name in stored}
    lacking = sorted(
        name for name, _ in model.named_parameters() if name not in stored
    )  # tied weights have one name
    if lacking:
        raise ModelError(f"{folder.name} lacks the weight {lacking[0]}", "checkpoint.lacks_weight")
    model.load_state_dict({name: stored.get(name, *shape) for name, shape in shapes.items()}, strict=False)
    return model.to(dtype)


AutoConfig.register("linear_llama", LinearLlamaConfig, exist_ok=True)
AutoModelForCausalLM.register(LinearLlamaConfig, LinearLlamaForCausalLM, exist_ok=True)
