"""Jakiro's draft head: EAGLE's layer with two experts instead of its feed-forward (Huang et al. 2502.06282).

A router gives four weights per row. The softmax of the first two mixes the experts into the prediction of
the next hidden state, as in EAGLE. The softmax of the other two contrasts them: the weighted larger expert
minus the weighted smaller one predicts the hidden state after the next, so the last level of a draft needs
no forward pass.

``load`` reads the authors' names, which this project also writes: EAGLE's with ``layers.0.mlp_moe.gate``
and ``layers.0.mlp_moe.experts.N.*``. Their Jakiro*, whose experts are heads of two plain layers (``fc``,
``proj``), is another network and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.eagle import Eagle, EagleRows, config_like, load_variant
from ....models.eagle_layers import FusedLayers, Layer, Mlp, Sizes
from ....models.heads import HeadWeights, TargetInfo, check_fit


class Experts(nn.Module):
    """Jakiro's router and two experts (feed-forward blocks), an nn.Module: x [..., hidden] -> two
    predictions."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.gate = nn.Linear(sizes.hidden, 4, bias=False)
        self.experts = nn.ModuleList(Mlp(sizes) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (prediction of the next hidden state [..., hidden], prediction of the one after it [...,
        hidden], the first expert's weight in the former [..., 1])."""
        first, second = (expert(x) for expert in self.experts)
        mixed, against = (part.softmax(-1) for part in self.gate(x).split(2, -1))
        favour = signed(against)
        following, later = (share[..., :1] * first + share[..., 1:] * second for share in (mixed, favour))
        return following, later, mixed[..., :1]


def signed(against: Tensor) -> Tensor:
    """Return the pairs of weights ``against`` [..., 2] with the smaller one of each pair negated."""
    first, second = torch.where(against[..., :1] > against[..., 1:], against, -against).split(1, -1)
    return torch.cat([first, -second], -1)


class JakiroLayer(Layer):
    """A decoder layer, an nn.Module, without a norm before its attention and with two experts as its
    feed-forward. The output of a position is [next state, state after the next, first expert's weight],
    concatenated."""

    def __init__(self, sizes: Sizes, bias: bool):
        super().__init__(sizes, False, False, bias)
        self.post_attention_layernorm, self.mlp_moe = nn.RMSNorm(sizes.hidden, eps=sizes.eps), Experts(sizes)

    def feed_forward(self, x: Tensor) -> Tensor:
        following, later, share = self.mlp_moe(self.post_attention_layernorm(x))
        return torch.cat([x + following, x + later, share], -1)


class Jakiro(Eagle):
    """Jakiro's draft head (Huang et al. 2502.06282), an nn.Module: EAGLE's, with two experts as its
    feed-forward.

    config: a Llama-like config.json; ``bias``: whether fc has one (default true, as published);
    ``qkv_bias``."""

    def __init__(self, config: dict[str, Any], name: str = "the Jakiro head"):
        super().__init__({**config, "num_hidden_layers": 1}, name)
        self.layers = nn.ModuleList([JakiroLayer(self.sizes, bool(config.get("qkv_bias", False)))])

    def feedback(self, x: Tensor) -> Tensor:
        return x[..., : self.sizes.hidden]

    predict = feedback

    def after_next(self, x: Tensor) -> Tensor:
        """Return the part [..., hidden] of a position's output that predicts the token after the next."""
        return x[..., self.sizes.hidden : 2 * self.sizes.hidden]

    def logits(self, states: Tensor, target_head: Callable[[Tensor], Tensor]) -> Tensor:
        return target_head(self.predict(states))

    @cached_property
    def fused(self) -> JakiroNet:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return JakiroNet(self)

    def open(self) -> JakiroRows:
        """Return a KV cache over these weights for one run."""
        return JakiroRows(self.fused)


class JakiroNet(FusedLayers):
    """Jakiro's layer in inference layout, with the experts' matrices fused into one, so that a small batch
    costs few calls."""

    def __init__(self, head: Jakiro):
        super().__init__(head.layers, head.config, head.fc)
        moe = cast(JakiroLayer, head.layers[0]).mlp_moe
        with torch.inference_mode():
            self.gate = moe.gate.weight.detach()
            self.into = torch.cat(
                [getattr(expert, name).weight for name in ("gate_proj", "up_proj") for expert in moe.experts]
            )
            self.out = torch.stack([cast(Mlp, expert).down_proj.weight for expert in moe.experts])

    def run(self, x: Tensor, rotation: Tensor, slots: Tensor, at: int, mask: Tensor | None) -> Tensor:
        x = super().run(x, rotation, slots, at, mask)
        y = self.blocks[0].norm_mlp(x)
        gates, ups = F.linear(y, self.into).view(len(x), 2, 2, -1).unbind(1)
        outputs = torch.einsum("nei,edi->ned", F.silu(gates) * ups, self.out)  # [n, experts, hidden]
        mixed, against = F.linear(y, self.gate).view(len(x), 2, 2).softmax(-1).unbind(1)
        guesses = torch.einsum("gne,ned->ngd", torch.stack([mixed, signed(against)]), outputs) + x[:, None]
        return torch.cat([guesses.flatten(1), mixed[:, :1]], -1)


class JakiroRows(EagleRows):
    """KV cache of Jakiro's head for one run: pairs (embedding of token t + 1, feature t or its prediction)
    -> outputs as in JakiroLayer."""

    def _joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        return super()._joined(embeds, features[..., : self.net.hidden])


def build(target: TargetInfo, hparams: dict[str, Any]) -> Jakiro:
    """Return an untrained head for a target. hparams, all optional: intermediate (of an expert), heads,
    kv_heads, head_dim, bias."""
    config = {
        "num_local_experts": 2,
        "num_experts_per_tok": 2,
        **config_like(target, hparams),
        "bias": bool(hparams.get("bias", True)),
    }
    return Jakiro(config, f"the Jakiro head of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> Jakiro:
    """Load the head of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "jakiro")
    weights = HeadWeights(folder, target)
    if weights.first(r"layers\.0\.mlp_moe\.experts\.\d+\.fc\.weight"):
        raise ModelError(
            f"{folder.name} is a Jakiro* head, whose experts are heads of their own; Jakiro's are read here",
            "jakiro.star",
        )
    if (several := len(weights.indices(r"layers\.0\.mlp_moe\.experts\.(\d+)\."))) > 2:
        raise ModelError(f"{folder.name} has {several} experts; heads of two are read here", "jakiro.experts")
    return load_variant(folder, target, Jakiro)
