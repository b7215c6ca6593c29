"""A draft model that reads mask tokens: each mask behind the text stands for a token not known yet, and its row guesses the one after
it, so that one pass drafts a whole block (PARD, An et al. 2504.18583). It reads no states of a target, so one serves a whole family.

``load`` reads the published layout, which is ours too: a causal language model of the Llama family (config.json, ``model.*``, maybe
``lm_head.weight``) whose config says ``pard_token``, the id that stands for a mask.
"""
from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .eagle import layer_weights, like
from .eagle_layers import Fused, Layer, RowCache, Sizes, angles_of
from .heads import Body, HeadWeights, config_of, fill, why_not
from .llama import FAMILY, Norm
from .weights import ModelError


class MaskedModel(nn.Module):
    """config: a Llama-like config.json with pard_token, attention_bias, qk_norm, tie_word_embeddings. width: tokens that its logits
    speak of, the target's vocabulary; what is beyond its own is never guessed."""

    taps: tuple[str, ...] = ()

    def __init__(self, config: dict[str, Any], name: str = "the masked draft model", width: int = 0):
        super().__init__()
        self.config, self.name, self.sizes = config, name, Sizes.of(config, name)
        d, self.vocab, self.mask_token = self.sizes.hidden, config["vocab_size"], config["pard_token"]
        self.width = width or self.vocab
        if type(self.mask_token) is not int or not 0 <= self.mask_token < self.vocab:
            raise ModelError(f"config.json of {name} says pard_token is {str(self.mask_token)[:40]}, which is none of {self.vocab} tokens")
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

    def forward(self, ids: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """States after the last norm, for training: ids and places [batch, n], mask [batch, 1, n, n], True where a row may look."""
        angles = angles_of(self.config, self.sizes.head_dim, int(places.max()) + 1, ids.device)[places][:, None]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, angles, None, mask)[0]
        return self.model.norm(x)

    @cached_property
    def fused(self) -> MaskedNet:
        """The weights as they draft; made once, shared by every run."""
        return MaskedNet(self)

    def open(self) -> MaskedRows:
        """A run's own cache over these weights."""
        return MaskedRows(self)


class MaskedNet(Fused):
    def __init__(self, whole: MaskedModel):
        super().__init__(list(whole.model.layers), whole.config)
        self.table, self.output = whole.model.embed_tokens.weight.detach(), whole.output.detach()
        self.after = Norm(whole.model.norm.weight.detach(), self.eps)


class MaskedRows(RowCache):
    """Tokens of the text in, which stay; masks behind them, which are forgotten."""

    def __init__(self, whole: MaskedModel):
        super().__init__(whole.fused)
        self.mask_token, self.width = whole.mask_token, whole.width

    def draft(self, ids: list[int], masks: int) -> Tensor:
        """Logits [1 + masks, width] behind the last of the tokens and behind each of the masks, all from one pass."""
        table = self.net.table
        rows = F.embedding(torch.tensor(ids + [self.mask_token] * masks, device=table.device), table)
        said = F.linear(self.net.after(self.read(rows, passing=masks)[-1 - masks:]), self.net.output)
        return F.pad(said[:, :self.width], (0, self.width - min(self.width, said.shape[1])), value=-torch.inf)


def build(body: Body, numbers: dict[str, Any]) -> MaskedModel:
    """An untrained one. numbers, all optional: hidden, layers, heads, kv_heads, head_dim, intermediate, mask_token."""
    config = like(body, numbers) | {"hidden_size": numbers.get("hidden") or body.hidden, "pard_token": numbers.get("mask_token", 0),
                                    "spd_type": "pard", "tie_word_embeddings": True}
    return MaskedModel(config, f"the masked draft model of {body.name}")


def load(folder: str | Path, body: Body) -> MaskedModel:
    """The draft model of a folder, ours or a published one. Raises ModelError with one sentence."""
    folder = Path(folder)
    problem = why_not(folder, body.name, body.hidden, body.vocab, "pard")
    if problem:
        raise ModelError(problem)
    config = config_of(folder)
    if "pard_token" not in config:
        raise ModelError(f"{folder.name} was not taught to read masks: its config.json names no pard_token")
    if config.get("model_type") not in FAMILY:
        raise ModelError(f"{folder.name} is of type {config.get('model_type')}; masked draft models of {', '.join(FAMILY)} are read")
    return read(folder, config, body)


def read(folder: Path, config: dict[str, Any], body: Body) -> MaskedModel:
    """A causal language model of the Llama family as a masked one; config: with pard_token. Raises ModelError."""
    weights = HeadWeights(folder, body)
    tied = "lm_head.weight" not in weights
    config = config | {"tie_word_embeddings": tied, "attention_bias": "model.layers.0.self_attn.q_proj.bias" in weights,
                       "qk_norm": "model.layers.0.self_attn.q_norm.weight" in weights}
    sizes = Sizes.of(config, folder.name)
    vocab = weights.shape("model.embed_tokens.weight")[0]
    found: dict[str, Tensor | None] = {"model.embed_tokens.weight": weights.get("model.embed_tokens.weight", vocab, sizes.hidden),
                                       "model.norm.weight": weights.get("model.norm.weight", sizes.hidden)}
    if not tied:
        found["lm_head.weight"] = weights.get("lm_head.weight", vocab, sizes.hidden)
    for i in range(sizes.layers):
        found |= layer_weights(weights, sizes, f"model.layers.{i}.", True, True)
        if config["qk_norm"]:
            found |= {f"model.layers.{i}.self_attn.{part}.weight": weights.get(f"model.layers.{i}.self_attn.{part}.weight", sizes.head_dim)
                      for part in ("q_norm", "k_norm")}
    weights.none_left()
    made = MaskedModel(config | {"vocab_size": vocab}, folder.name, body.vocab)
    return fill(made, {name: tensor for name, tensor in found.items() if tensor is not None}, body)
