"""GliDe (Du et al. 2402.02082): a small decoder with cross-attention to the target's KV cache.

Each layer has a second attention after its own: its queries read keys and values of the target's last
layers. These exist for verified tokens only, so a drafted token attends to them up to the last verified
one. Training imitates this with blocks of ``block`` tokens: a token attends to what lies before its block,
in the first block up to itself. The paper's drafter has its own embedding and output matrix; here both are
the target's. No weights were published; parameter names are this project's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....core import to_device
from ....models.eagle import config_like, layer_weights
from ....models.eagle_layers import FusedLayers, Layer, Sizes, _rotated, angles_of
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill, key_shape
from ....models.llama import inverse_frequencies, rope_of
from ....models.rms_norm import Norm
from ....models.row_cache import RowCache


class CrossAttention(nn.Module):
    """Attention of GliDe's draft model to the target's keys and values, an nn.Module. heads: of the
    queries; kv_heads, head_dim: of the target's keys."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, head_dim: int):
        super().__init__()
        self.group, self.head_dim = heads // kv_heads, head_dim
        self.q_proj, self.o_proj = (
            nn.Linear(hidden, heads * head_dim, bias=False),
            nn.Linear(heads * head_dim, hidden, bias=False),
        )

    def forward(self, x: Tensor, angles: Tensor, keys: Tensor, values: Tensor, sees: Tensor) -> Tensor:
        """Return the attention's output [batch, n, hidden].

        x [batch, n, hidden]; angles [n, head_dim / 2]: rotary angles of the positions; keys (rotated) and
        values [batch, kv_heads, c, head_dim]: the target's; sees [n, c]: True where a position may attend.
        A position that may attend to no key gets zeros."""
        if not keys.shape[2]:
            return torch.zeros_like(x)
        q = _rotated(self.q_proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2), angles).to(x)
        keys, values = (part.to(x).repeat_interleave(self.group, 1) for part in (keys, values))
        some = sees.any(-1)
        y = F.scaled_dot_product_attention(q, keys, values, sees | ~some[:, None]) * some[:, None]
        return self.o_proj(y.transpose(1, 2).flatten(2))


class GlideLayer(Layer):
    """A decoder layer with cross-attention between its self-attention and its feed-forward, an nn.Module.
    keys: (number, width) of the target's key heads."""

    def __init__(self, sizes: Sizes, keys: tuple[int, int]):
        super().__init__(sizes, True, True)
        self.cross_attn = CrossAttention(sizes.hidden, sizes.heads, *keys)

    def across(
        self, x: Tensor, angles: Tensor, rotations: Tensor, target_kv: tuple[Tensor, Tensor], sees: Tensor
    ) -> Tensor:
        """Return the layer's output [batch, n, hidden]: causal self-attention, cross-attention to the
        target's keys and values ``target_kv`` (arguments as in CrossAttention.forward), feed-forward."""
        x = x + self.self_attn(self.input_layernorm(x), angles, None, None)[0]
        x = x + self.cross_attn(x, rotations, *target_kv, sees)
        return self.feed_forward(x)


class Glide(nn.Module):
    """GliDe's draft model (Du et al. 2402.02082), an nn.Module: decoder layers with cross-attention to the
    target's KV cache.

    config: a Llama-like config.json with block_size, target_key_heads, target_head_dim and target_layers
    (number of the target's layers)."""

    def __init__(self, config: dict[str, Any], name: str = "the GliDe drafter"):
        super().__init__()
        self.config = config
        self.name = name
        self.sizes = Sizes.of(config, name)
        try:
            self.block, self.keys = (
                int(config["block_size"]),
                (int(config["target_key_heads"]), int(config["target_head_dim"])),
            )
            self.reads = range(int(config["target_layers"]) - self.sizes.layers, int(config["target_layers"]))
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        if (
            self.block < 1
            or min(self.keys) < 1
            or self.sizes.heads % self.keys[0]
            or self.keys[1] % 2
            or self.reads.start < 0
        ):
            raise ModelError(f"config.json of {name} gives sizes that do not fit together", "head.sizes")
        self.layers = nn.ModuleList(GlideLayer(self.sizes, self.keys) for _ in range(self.sizes.layers))
        self.norm = nn.RMSNorm(self.sizes.hidden, eps=self.sizes.eps)

    def horizon(self, at: int) -> int:
        """Return how many of the target's keys the text token at position ``at`` sees in training."""
        return at + 1 if at < self.block else at - at % self.block

    def forward(self, embeds: Tensor, target_kv: list[tuple[Tensor, Tensor]], horizons: Tensor) -> Tensor:
        """Training: return final hidden states [batch, n, hidden] for the target's output matrix. embeds
        [batch, n, hidden]: token embeddings; target_kv: keys and values [batch, kv_heads, n, head_dim] of
        each target layer used; horizons [n]: how many of them each position sees."""
        n, device = embeds.shape[1], embeds.device
        angles, rotations = (
            angles_of(self.config, width, n, device) for width in (self.sizes.head_dim, self.keys[1])
        )
        sees, x = torch.arange(n, device=device) < horizons[:, None], embeds
        for layer, pair in zip(self.layers, target_kv):
            x = cast(GlideLayer, layer).across(x, angles, rotations, pair, sees)
        return self.norm(x)

    @cached_property
    def fused(self) -> GlideNet:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return GlideNet(self)

    def open(self) -> GlideRows:
        """Return a KV cache over these weights for one run."""
        return GlideRows(self.fused)


class GlideNet(FusedLayers):
    """GliDe's network in inference layout. owner: the KV cache of one run, which holds its positions and
    the target keys that they see. Each run has its own copy of this object over shared weights."""

    owner: GlideRows

    def __init__(self, module: Glide):
        super().__init__(module.layers, module.config)
        self.static, self.buffers = False, None  # what a row sees of the target's keys follows from the text
        self.cross = [cast(GlideLayer, layer).cross_attn for layer in module.layers]
        self.after = Norm(module.norm.weight.detach(), self.eps)
        self.inverse = inverse_frequencies(rope_of(module.config), module.keys[1])

    def run(self, x: Tensor, rotation: Tensor, slots: Tensor, at: int, mask: Tensor | None) -> Tensor:
        places, owner = self.owner.positions, self.owner
        angles = torch.tensor(places, dtype=torch.float32)[:, None] * self.inverse
        angles = to_device(angles, x.device)
        seen = to_device(
            torch.tensor(
                [owner.horizons[at] if at < len(owner.horizons) else owner.horizons[-1] for at in places]
            ),
            x.device,
        )
        for block, cross, room, (keys, values) in zip(self.blocks, self.cross, slots, owner.target_kv):
            x = self.attend(block, x, rotation, room, at, mask)
            sees = torch.arange(keys.shape[1], device=x.device) < seen[:, None]
            x = self.transform(block, x + cross(x[None], angles, keys[None], values[None], sees)[0])
        return self.after(x)


class GlideRows(RowCache):
    """KV cache of GliDe's draft model for one run: embeddings of the text's tokens, including the last ->
    final hidden states for the target's output matrix.

    horizons: for each text token, the number of target keys that it sees; drafted tokens see those of the
    last text token. target_kv: these keys and values, [kv_heads, c, head_dim], of each target layer
    used."""

    net: GlideNet

    def __init__(self, net: GlideNet):
        super().__init__(copy.copy(net))
        self.net.owner = self
        self.horizons: list[int] = []
        self.positions: list[int] = []  # of the rows that run now
        self.target_kv: list[tuple[Tensor, Tensor]] = []

    def _run(
        self, x: Tensor, depths: list[int], sees: Tensor, work: Callable[..., Tensor | None] | None = None
    ) -> Tensor | None:
        self.positions = [self.first + self.count + depth for depth in depths]
        return super()._run(x, depths, sees, work)


def build(target: TargetInfo, hparams: dict[str, Any]) -> Glide:
    """Return an untrained draft model for a target. hparams: block; the others optional: layers, heads,
    kv_heads, head_dim, intermediate."""
    heads, width = key_shape(target)
    config = config_like(target, hparams)
    config["num_attention_heads"] = (
        config["num_attention_heads"] if config["num_attention_heads"] % heads == 0 else heads
    )
    if config["num_attention_heads"] % config["num_key_value_heads"]:
        config["num_key_value_heads"] = config["num_attention_heads"]
    return Glide(
        {
            **config,
            "block_size": hparams["block"],
            "target_key_heads": heads,
            "target_head_dim": width,
            "target_layers": target.layers,
        },
        f"the GliDe drafter of {target.name}",
    )


def load(folder: str | Path, target: TargetInfo) -> Glide:
    """Load the draft model of a checkpoint folder. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights, config = HeadWeights(folder, target), {"hidden_size": target.hidden, **config_of(folder)}
    made = Glide(config, folder.name)
    if made.keys != key_shape(target) or made.reads.stop != target.layers:
        raise ModelError(
            f"{folder.name} reads {made.keys[0]} heads of keys of {made.keys[1]} numbers in a target of {made.reads.stop} "
            f"layers; {target.name} has {key_shape(target)[0]} of {key_shape(target)[1]} in {target.layers}",
            "glide.keys",
        )
    sizes, found = made.sizes, {"norm.weight": weights.get("norm.weight", target.hidden)}
    for i in range(sizes.layers):
        at = f"layers.{i}."
        found |= {
            name: tensor
            for name, tensor in layer_weights(weights, sizes, at, True, True).items()
            if tensor is not None
        }
        found[f"{at}cross_attn.q_proj.weight"] = weights.get(
            f"{at}cross_attn.q_proj.weight", sizes.heads * made.keys[1], sizes.hidden
        )
        found[f"{at}cross_attn.o_proj.weight"] = weights.get(
            f"{at}cross_attn.o_proj.weight", sizes.hidden, sizes.heads * made.keys[1]
        )
    weights.check_none_unread()
    return fill(made, found, target)
