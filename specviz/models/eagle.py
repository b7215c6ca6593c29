"""EAGLE's draft head: one decoder layer that predicts the target's next hidden state (Li et al. 2401.15077;
EAGLE-2 uses the same weights, Li et al. 2406.16858).

A "feature" is the target's final hidden state after the final norm, the input of its output matrix. Row t
joins the embedding of token t + 1 with feature t and predicts feature t + 1; embedding and output matrix
are the target's. The next token is an input because the next feature depends on which token was sampled.
The layer has no norm before its attention, and no norm follows the layer.

``load`` reads the published layout: config.json and model.safetensors with ``fc.weight`` [d, 2d],
optionally ``fc.bias``, ``layers.0.*``, optionally biases of queries, keys and values, and optionally
``embed_tokens.weight``, a frozen copy of the target's that is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.weights import ModelError, Weights
from .eagle_layers import FusedLayers, Layer, Sizes, angles_of, rotary_keys
from .heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from .row_cache import RowCache


class Eagle(nn.Module):
    """EAGLE's draft head, an nn.Module: one decoder layer over the target's final hidden states and token
    embeddings.

    config: a Llama-like config.json; ``bias``: whether fc has one (default true, as published); ``qkv_bias``.
    hidden_states: the target's hidden states that the head reads.
    """

    hidden_states = ("final",)  # the target's hidden states that it reads

    def __init__(self, config: dict[str, Any], name: str = "the EAGLE head"):
        super().__init__()
        self.config = config
        self.name = name
        self.sizes = Sizes.of(config, name)
        d = self.sizes.hidden
        self.fc = nn.Linear(2 * d, d, bias=bool(config.get("bias", True)))
        self.layers = nn.ModuleList(
            Layer(self.sizes, i > 0, True, bool(config.get("qkv_bias", False)))
            for i in range(self.sizes.layers)
        )
        self.embed_scale = 1.0  # of embeddings during training; ``fold_scale`` puts it into the weights

    def forward(self, embeds: Tensor, features: Tensor, steps: int = 1) -> list[Tensor]:
        """Training: return ``steps`` tensors [batch, n, hidden] of predicted features from embeds and
        features [batch, n, hidden].

        Row t of prediction j depends on true features up to t - j and on the head's own predictions for the
        last j, as when it drafts j tokens ahead. The first j rows of prediction j are invalid.
        """
        n = embeds.shape[1]
        angles = angles_of(self.config, self.sizes.head_dim, n, embeds.device)
        past: list = [None] * len(self.layers)
        out = []
        for step in range(steps):
            x = self.joined(embeds, features).to(features.dtype)  # the residual stays precise under autocast
            for i, layer in enumerate(self.layers):
                x, past[i] = layer(x, angles, past[i], step)
            out.append(x)
            features = torch.cat(
                [features[:, :1], self.feedback(x)[:, :-1]], 1
            )  # the guess of feature t was made at row t-1
        return out

    def joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        """Return the input [..., hidden] of the first layer: embedding and feature, concatenated and
        projected by ``fc``."""
        return self.fc(torch.cat([embeds * self.embed_scale, features], -1))

    @torch.no_grad()
    def fold_scale(self) -> None:
        """Multiply the weights that read embeddings by ``embed_scale``, so that the head has the published
        layout; the scale becomes 1."""
        self.fc.weight[:, : self.sizes.hidden] *= self.embed_scale
        self.embed_scale = 1.0

    @torch.no_grad()
    def unfold_scale(self) -> None:
        """Divide the weights that read embeddings by ``embed_scale``: weights of the published layout as
        training has them."""
        self.fc.weight[:, : self.sizes.hidden] /= self.embed_scale

    def feedback(self, x: Tensor) -> Tensor:
        """Return, from a row's output, the predicted feature that the next row reads."""
        return x

    def logits(self, states: Tensor, target_head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return logits of the next token from predicted features, through the target's head."""
        return target_head(states)

    @cached_property
    def fused(self) -> FusedLayers:
        """The weights in inference layout; converted once and shared by all runs."""
        return FusedLayers(self.layers, self.config, self.fc)

    def open(self) -> EagleRows:
        """Return a KV cache over these weights for one run."""
        return EagleRows(self.fused)


class EagleRows(RowCache):
    """KV cache of EAGLE's head for one run. Each row is a pair (embedding of token t + 1, feature t); its
    output predicts feature t + 1."""

    def read(self, embeds: Tensor, features: Tensor) -> Tensor:
        """Append rows of the text: embeddings and the target's features, [n, hidden] each; return their
        outputs [n, hidden]."""
        return super().read(self._joined(embeds, features))

    def branch(self, embeds: Tensor, features: Tensor, parents, depths) -> Tensor:
        """Run nodes of a draft tree with predicted features, as ``RowCache.branch``; return their outputs
        [n, hidden]. The rows are dropped after the round."""
        return super().branch(self._joined(embeds, features), parents, depths)

    def _joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        kind = self.net.dtype
        return self.net.lead(torch.cat([embeds.to(kind), features.to(kind)], -1))


def build(target: TargetInfo, hparams: dict[str, Any]) -> Eagle:
    """Return an untrained head shaped like one of the target's layers. hparams, all optional: intermediate,
    layers, heads, kv_heads, head_dim, bias."""
    return Eagle(
        {**config_like(target, hparams), "bias": bool(hparams.get("bias", True))},
        f"the EAGLE head of {target.name}",
    )


def serial_weights(weights: Weights, sizes: Sizes) -> dict[str, Tensor]:
    """Return ``fc`` and the layers of a head in EAGLE's layout, by name. Raises ModelError."""
    d = sizes.hidden
    found = {"fc.weight": weights.get("fc.weight", d, 2 * d), "fc.bias": weights.get_optional("fc.bias", d)}
    for i in range(sizes.layers):
        found |= layer_weights(weights, sizes, f"layers.{i}.", i > 0, True)
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def load(folder: str | Path, target: TargetInfo) -> Eagle:
    """Load the head of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "eagle")
    weights, config = HeadWeights(folder, target), {"hidden_size": target.hidden, **config_of(folder)}
    sizes = Sizes.of(config, folder.name)
    if "embed_tokens.weight" in weights and weights.shape("embed_tokens.weight")[0] != target.vocab:
        raise ModelError(
            f"{folder.name} knows {weights.shape('embed_tokens.weight')[0]} tokens; {target.name} has {target.vocab}",
            "head.vocabulary",
        )
    found = serial_weights(weights, sizes)
    weights.check_none_unread()
    config = {**config, "bias": "fc.bias" in found, "qkv_bias": "layers.0.self_attn.q_proj.bias" in found}
    return fill(Eagle(config, folder.name), found, target)


def load_variant(folder: Path, target: TargetInfo, kind: Callable[..., Eagle], *ignored: str) -> Any:
    """Load a variant of EAGLE's head that uses this project's parameter names. kind: its class; ignored:
    patterns of weight names that are not read. Biases of queries, keys and values are optional. Raises
    ModelError."""
    weights = HeadWeights(folder, target)
    config = {"hidden_size": target.hidden, "vocab_size": target.vocab, **config_of(folder)}
    layers = max([0, *weights.indices(r"layers\.(\d+)\.")]) + 1
    if layers > 1:
        raise ModelError(
            f"{folder.name} has {layers} layers; heads of this kind are read with one", "head.layers"
        )
    made = kind(config | {"qkv_bias": "layers.0.self_attn.q_proj.bias" in weights}, folder.name)
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread(*ignored)
    return fill(made, found, target)


def config_like(target: TargetInfo, hparams: dict[str, Any]) -> dict[str, Any]:
    """Return a config.json for a new head with layers like the target's, except for the sizes given in
    hparams."""
    whole, d = target.config.get("text_config") or target.config, target.hidden
    heads = hparams.get("heads") or whole.get("num_attention_heads") or max(1, d // 64)
    kv_heads = hparams.get("kv_heads") or whole.get("num_key_value_heads") or heads
    fields = {
        "hidden_size": d,
        "vocab_size": target.vocab,
        "num_hidden_layers": hparams.get("layers", 1),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hparams.get("head_dim") or whole.get("head_dim") or d // heads,
        "intermediate_size": hparams.get("intermediate") or whole.get("intermediate_size") or 3 * d,
        "rms_norm_eps": whole.get("rms_norm_eps", 1e-6),
        "max_position_embeddings": whole.get("max_position_embeddings", 2048),
    }
    return fields | {"rope_parameters": rotary_keys(whole), "model_type": "llama", "hidden_act": "silu"}


def layer_weights(
    weights: Weights, sizes: Sizes, at: str, normed: bool, feedback: bool, wide: int = 1
) -> dict[str, Tensor | None]:
    """Return the tensors of one layer by their names in the file; missing biases are None. at: prefix of
    the names; normed: the layer has a norm before its attention; feedback: it has a feed-forward block;
    wide: input width of its projections divided by the hidden size. Raises ModelError."""
    d = sizes.hidden
    q = sizes.heads * sizes.head_dim
    kv = sizes.kv_heads * sizes.head_dim
    inner = sizes.inner
    rows = {"q_proj": q, "k_proj": kv, "v_proj": kv}
    found = {
        f"{at}self_attn.{name}.weight": weights.get(f"{at}self_attn.{name}.weight", out, wide * d)
        for name, out in rows.items()
    }
    found |= {
        f"{at}self_attn.{name}.bias": weights.get_optional(f"{at}self_attn.{name}.bias", out)
        for name, out in rows.items()
    }
    shapes: dict[str, tuple[int, ...]] = {"self_attn.o_proj": (d, q)}
    if normed:
        shapes["input_layernorm"] = (d,)
    if feedback:
        shapes |= {
            "post_attention_layernorm": (d,),
            "mlp.gate_proj": (inner, d),
            "mlp.up_proj": (inner, d),
            "mlp.down_proj": (d, inner),
        }
    return found | {
        f"{at}{name}.weight": weights.get(f"{at}{name}.weight", *shape) for name, shape in shapes.items()
    }
