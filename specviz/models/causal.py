"""A small causal language model of the Llama family that is trained here: PARD's draft model, and a target taught to guess (CLLM,
Kou et al. 2403.00835).

The modules carry Hugging Face's names (``model.*``, maybe ``lm_head.weight``) and are what is trained; ``fused`` is the same
weights as the row-wise forward, fit for a cache of rows and for a target alike.
"""
from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .eagle import layer_weights, like
from .eagle_layers import Fused, Layer, Sizes, angles_of
from .heads import Body, HeadWeights, config_of, fill, why_not
from .llama import Norm
from .weights import ModelError


class Causal(nn.Module):
    """config: a Llama-like config.json with attention_bias, qk_norm, tie_word_embeddings."""

    taps: tuple[str, ...] = ()

    def __init__(self, config: dict[str, Any], name: str = "the model"):
        super().__init__()
        self.config, self.name, self.sizes = config, name, Sizes.of(config, name)
        d, self.vocab = self.sizes.hidden, config["vocab_size"]
        bias, qk_norm = bool(config.get("attention_bias")), bool(config.get("qk_norm"))
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(self.vocab, d)
        self.model.layers = nn.ModuleList(Layer(self.sizes, True, True, bias, qk_norm=qk_norm) for _ in range(self.sizes.layers))
        self.model.norm = nn.RMSNorm(d, eps=self.sizes.eps)
        self.lm_head = None if config.get("tie_word_embeddings") else nn.Linear(d, self.vocab, bias=False)

    @property
    def output(self) -> Tensor:
        """The output matrix, [vocab, hidden]."""
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def forward(self, ids: Tensor, places: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """States after the last norm, for training: ids and places [batch, n]; mask [batch, 1, n, n], True where a row may look.
        Without them the rows are a text."""
        longest = ids.shape[1] if places is None else int(places.max()) + 1
        angles = angles_of(self.config, self.sizes.head_dim, longest, ids.device)
        angles = angles if places is None else angles[places][:, None]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, angles, None, mask)[0]
        return self.model.norm(x)

    @cached_property
    def fused(self) -> CausalNet:
        """The weights as they run; made once, shared by every run."""
        return CausalNet(self)


class CausalNet(Fused):
    """What a target of ours needs of a Llama, made from trained modules."""

    def __init__(self, whole: Causal):
        super().__init__(list(whole.model.layers), whole.config)
        self.name, self.vocab, self.config = whole.name, whole.vocab, whole.config
        self.embedding, self.output = whole.model.embed_tokens.weight.detach(), whole.output.detach()
        self.norm_final = Norm(whole.model.norm.weight.detach(), self.eps)

    def head(self, states: Tensor) -> Tensor:
        return F.linear(states, self.output)


def build(body: Body, numbers: dict[str, Any]) -> Causal:
    """An untrained model shaped like the target. numbers, all optional: layers, heads, kv_heads, head_dim, intermediate."""
    config = {**like(body, {"layers": body.layers, **numbers}), "tie_word_embeddings": True}
    return Causal(config, f"the consistency model of {body.name}")


def load(folder: str | Path, body: Body) -> Causal:
    """The model of a folder, as wide as the target it was. Raises ModelError with one sentence."""
    folder = Path(folder)
    problem = why_not(folder, body.name, body.hidden, body.vocab, "cllm")
    if problem:
        raise ModelError(problem)
    config, found = read(HeadWeights(folder, body), config_of(folder))
    return fill(Causal(config, folder.name), found, body)


def read(weights: HeadWeights, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(config, tensors) of a causal language model of the Llama family. Raises ModelError."""
    tied = "lm_head.weight" not in weights
    config = config | {"tie_word_embeddings": tied, "attention_bias": "model.layers.0.self_attn.q_proj.bias" in weights,
                       "qk_norm": "model.layers.0.self_attn.q_norm.weight" in weights}
    sizes, table = Sizes.of(config, weights.title), "model.embed_tokens.weight"
    vocab = weights.shape(table)[0]
    found: dict[str, Tensor | None] = {table: weights.get(table, vocab, sizes.hidden),
                                       "model.norm.weight": weights.get("model.norm.weight", sizes.hidden)}
    if not tied:
        found["lm_head.weight"] = weights.get("lm_head.weight", vocab, sizes.hidden)
    for i in range(sizes.layers):
        at = f"model.layers.{i}."
        found |= layer_weights(weights, sizes, at, True, True)
        if config["qk_norm"]:
            names = (f"{at}self_attn.{part}.weight" for part in ("q_norm", "k_norm"))
            found |= {name: weights.get(name, sizes.head_dim) for name in names}
    weights.none_left()
    return config | {"vocab_size": vocab}, {name: tensor for name, tensor in found.items() if tensor is not None}
