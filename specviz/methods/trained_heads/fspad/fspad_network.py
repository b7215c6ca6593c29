"""FSPAD's draft head: EAGLE's layer with feature sampling at its input and two output states (Gui et al.
2408.15562).

A gated feed-forward joins the token's embedding and the target's last hidden state; the gate is the
embedding, so that of a hidden state compatible with several continuations the part that fits the token is
kept. After the attention the feed-forward gives two states: the first predicts the next token through the
target's head, the second predicts the next hidden state and is fed back.

No weights were published; ``load`` reads the names of the authors' code, which this project also writes:
``fc.fc``, ``fc.mlp``, ``fc.post_attention_layernorm``, ``layers.0.*`` with ``mlp.down_proj`` of twice the
width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....models.eagle import Eagle, EagleRows, config_like, load_variant
from ....models.eagle_layers import FusedLayers, Layer, Mlp, Sizes
from ....models.heads import TargetInfo, check_fit
from ....models.llama import Block
from ....models.rms_norm import Norm


class GatedInput(nn.Module):
    """FSPAD's input projection, an nn.Module: token embeddings and the target's hidden states, both [...,
    hidden] -> [..., hidden], gated by the embedding."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.fc, self.mlp = nn.Linear(2 * sizes.hidden, sizes.hidden), Mlp(sizes)
        self.post_attention_layernorm = nn.RMSNorm(sizes.hidden, eps=sizes.eps)

    def forward(self, embeds: Tensor, features: Tensor) -> Tensor:
        x, mlp = self.fc(torch.cat([embeds, features], -1)), self.mlp
        return x + mlp.down_proj(
            F.silu(mlp.gate_proj(embeds)) * mlp.up_proj(self.post_attention_layernorm(x))
        )


class FspadLayer(Layer):
    """A decoder layer, an nn.Module, without a norm before its attention, whose feed-forward gives two
    output states, concatenated: [..., 2 * hidden]."""

    def __init__(self, sizes: Sizes, bias: bool):
        super().__init__(sizes, False, True, bias)
        assert self.mlp is not None
        self.mlp.down_proj = nn.Linear(sizes.inner, 2 * sizes.hidden, bias=False)

    def feed_forward(self, x: Tensor) -> Tensor:
        assert self.mlp is not None and self.post_attention_layernorm is not None
        return torch.cat([x, x], -1) + self.mlp(self.post_attention_layernorm(x))


class Fspad(Eagle):
    """FSPAD's draft head (Gui et al. 2408.15562), an nn.Module: EAGLE's, with two output states, one that
    predicts the token and one that is fed back.

    config: a Llama-like config.json; ``qkv_bias``. The output of a position is [predict, regress], each of
    the target's hidden size."""

    def __init__(self, config: dict[str, Any], name: str = "the FSPAD head"):
        super().__init__({**config, "num_hidden_layers": 1}, name)
        self.fc = GatedInput(self.sizes)
        self.layers = nn.ModuleList([FspadLayer(self.sizes, bool(config.get("qkv_bias", False)))])

    def joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        return self.fc(embeds, features)

    def feedback(self, x: Tensor) -> Tensor:
        return x[..., self.sizes.hidden :]

    def predict(self, x: Tensor) -> Tensor:
        """Return the part [..., hidden] of a position's output that predicts the next token."""
        return x[..., : self.sizes.hidden]

    def logits(self, states: Tensor, target_head: Callable[[Tensor], Tensor]) -> Tensor:
        return target_head(self.predict(states))

    @cached_property
    def fused(self) -> FspadNet:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return FspadNet(self)

    def open(self) -> FspadRows:
        """Return a KV cache over these weights for one run."""
        return FspadRows(self.fused)


class FspadNet(FusedLayers):
    """FSPAD's layer in inference layout, with its gated input projection."""

    def __init__(self, head: Fspad):
        super().__init__(head.layers, head.config, head.fc.fc)
        mlp = head.fc.mlp
        self.gate, self.up, self.down = (
            part.weight.detach() for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )
        self.sampled = Norm(head.fc.post_attention_layernorm.weight.detach(), self.eps)

    def joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        x = self.lead(torch.cat([embeds, features], -1))
        return x + F.linear(
            F.silu(F.linear(embeds, self.gate)) * F.linear(self.sampled(x), self.up), self.down
        )

    def transform(self, block: Block, x: Tensor) -> Tensor:
        both = block.gate_up(block.norm_mlp(x))
        return block.down.add(
            F.silu(both[:, : self.inner]).mul_(both[:, self.inner :]), torch.cat([x, x], -1)
        )


class FspadRows(EagleRows):
    """KV cache of FSPAD's head for one run: pairs (embedding of token t + 1, feature t or its prediction)
    -> the two output states [..., 2 * hidden]."""

    net: FspadNet

    def _joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        kind = self.net.dtype
        return self.net.joined(embeds.to(kind), features[..., -self.net.hidden :].to(kind))


def build(target: TargetInfo, hparams: dict[str, Any]) -> Fspad:
    """Return an untrained head for a target. hparams, all optional: intermediate, heads, kv_heads,
    head_dim."""
    return Fspad(config_like(target, hparams), f"the FSPAD head of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> Fspad:
    """Load the head of a checkpoint folder. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "fspad")
    return load_variant(folder, target, Fspad)
