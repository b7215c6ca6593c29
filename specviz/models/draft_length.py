"""Small networks that say, while a draft model writes, whether its tokens will pass.

SpecDec++ (Huang et al. 2405.19715): a head on the draft model's last states. The state that has read a token tells the chance that
this token is accepted, from a few residual blocks x + SiLU(W x + b) and a matrix onto (refused, accepted). The published layout is
also ours: ``model.0.linear.weight`` and so on, the matrix last. Published blocks are one block applied again, and its copies may be
left out.

DISCO (Mamou et al. 2405.04304): a classifier of two layers on a drafted token's own distribution: its largest probabilities, its
entropy in nats, and the token's place in the draft as a share of 20. No weights of it were published; the names are ours.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .heads import Body, HeadWeights, config_of, fill
from .weights import ModelError

ACCEPTANCE, DISCO = "specdecpp", "disco"
LONG = 20  # tokens: a place in the draft is told as a share of this, so that it is no larger than the other inputs


class Residual(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class AcceptanceHead(nn.Module):
    """hidden: width of the draft model's states; layers: residual blocks."""

    def __init__(self, hidden: int, vocab: int, layers: int = 3):
        super().__init__()
        self.hidden, self.vocab, self.depth = hidden, vocab, layers
        self.model = nn.Sequential(*(Residual(hidden) for _ in range(layers)), nn.Linear(hidden, 2))

    def logit(self, states: Tensor) -> Tensor:
        """Log odds [...] of acceptance from states [..., hidden]: the softmax over (refused, accepted) in one number."""
        refused, accepted = self.model(states.to(self.model[-1].weight.dtype)).unbind(-1)
        return accepted - refused

    def forward(self, states: Tensor) -> Tensor:
        """Chance [...] that the token which the state has read last is accepted."""
        return self.logit(states).sigmoid()

    @property
    def config(self) -> dict[str, Any]:
        return {"model_type": ACCEPTANCE, "draft_hidden_size": self.hidden, "vocab_size": self.vocab, "num_layers": self.depth}


class Classifier(nn.Module):
    """top: how many of the largest probabilities are read; inner: width between the two layers."""

    def __init__(self, vocab: int, top: int = 10, inner: int = 32):
        super().__init__()
        self.vocab, self.top = vocab, min(top, vocab)
        self.first, self.second = nn.Linear(self.top + 2, inner), nn.Linear(inner, 1)

    def logit(self, probs: Tensor, depth: Tensor) -> Tensor:
        """Log odds [...] from the draft's distributions [..., vocab] and the tokens' places [...], 0 first."""
        entropy = -torch.special.xlogy(probs, probs).sum(-1, keepdim=True)
        told = torch.cat([probs.topk(self.top, dim=-1).values, entropy, depth[..., None].to(probs.dtype) / LONG], -1)
        return self.second(F.relu(self.first(told.to(self.first.weight.dtype))))[..., 0]

    def forward(self, probs: Tensor, depth: Tensor) -> Tensor:
        """Chance [...] that the token drawn from each is accepted."""
        return self.logit(probs, depth).sigmoid()

    @property
    def config(self) -> dict[str, Any]:
        return {"model_type": DISCO, "vocab_size": self.vocab, "top": self.top, "inner": self.first.out_features}


def build(body: Body, numbers: dict[str, Any]) -> AcceptanceHead | Classifier:
    """An untrained one; ``body``: of the draft model. numbers: kind, and layers or top and inner."""
    if numbers["kind"] == DISCO:
        return Classifier(body.vocab, numbers["top"], numbers["inner"])
    return AcceptanceHead(body.hidden, body.vocab, numbers["layers"])


def load(folder: str | Path, body: Body) -> AcceptanceHead | Classifier:
    """The network of a folder; ``body``: of the target. Raises ModelError with a sentence."""
    weights, config = HeadWeights(Path(folder), body), config_of(Path(folder))
    found = _classifier(weights, config, body) if config.get("model_type") == DISCO else _acceptance(weights, body)
    weights.none_left()
    return found


def _classifier(weights: HeadWeights, config: dict[str, Any], body: Body) -> nn.Module:
    inner, told = weights.shape("first.weight")
    if told < 3 or told - 2 > body.vocab or config.get("top", told - 2) != told - 2:
        raise ModelError(f"{weights.title} reads {told} numbers a token, and its config.json says top {config.get('top')}: "
                         "its probabilities, the entropy and the place must be as many")
    tensors = {"first.weight": weights.get("first.weight", inner, told), "first.bias": weights.get("first.bias", inner),
               "second.weight": weights.get("second.weight", 1, inner), "second.bias": weights.get("second.bias", 1)}
    return fill(Classifier(body.vocab, told - 2, inner), tensors, body)


def _acceptance(weights: HeadWeights, body: Body) -> nn.Module:
    last = max(weights.numbers(r"model\.(\d+)\.weight"), default=-1)
    if last < 0:
        raise ModelError(f"{weights.title} holds no acceptance head: there is no matrix named model.N.weight")
    hidden = weights.shape(f"model.{last}.weight")[-1]
    tensors = {f"model.{last}.weight": weights.get(f"model.{last}.weight", 2, hidden),
               f"model.{last}.bias": weights.get(f"model.{last}.bias", 2)}
    there = weights.numbers(r"model\.(\d+)\.linear\.weight")
    if last and not there:
        raise ModelError(f"{weights.title} lacks the weight model.0.linear.weight")
    for i in range(last):
        at = i if i in there else there[0]
        tensors[f"model.{i}.linear.weight"] = weights.get(f"model.{at}.linear.weight", hidden, hidden)
        tensors[f"model.{i}.linear.bias"] = weights.get(f"model.{at}.linear.bias", hidden)
    return fill(AcceptanceHead(hidden, body.vocab, last), tensors, body)
