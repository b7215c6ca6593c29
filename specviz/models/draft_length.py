"""Small networks that decide the draft length: SpecDec++ and DISCO while drafting, AdaEAGLE before drafting.

SpecDec++ (Huang et al. 2405.19715): a head on the draft model's last hidden state predicts the probability
that the last token is accepted: residual blocks x + SiLU(W x + b) and a matrix to (rejected, accepted). The
published layout is also this project's: ``model.0.linear.weight`` and so on, the matrix last. Published
files repeat one block, and its copies may be left out.

DISCO (Mamou et al. 2405.04304): a two-layer classifier on a drafted token's distribution: its largest
probabilities, its entropy in nats, and the token's position in the draft divided by 20. No weights were
published; parameter names are this project's.

AdaEAGLE (Zhang et al. 2412.18910): predicts how many tokens of an EAGLE chain will be accepted, from the
target's final hidden state and the embedding of the token before the last. No weights were published.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.weights import ModelError
from .heads import HeadWeights, TargetInfo, config_of, fill

ACCEPTANCE = "specdecpp"  # SpecDec++'s head
DISCO = "disco"  # DISCO's classifier
LENGTH = "adaeagle"  # AdaEAGLE's network
LONG = 20  # tokens: a place in the draft is given as a share of this, so that it is no larger than the other inputs


class ResidualBlock(nn.Module):
    """nn.Module: x + SiLU(W x + b) for x [..., hidden]."""

    def __init__(self, hidden: int):
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return x + SiLU(W x + b), [..., hidden]."""
        return x + F.silu(self.linear(x))


class AcceptanceHead(nn.Module):
    """SpecDec++'s head, an nn.Module: from the draft model's hidden states, the probability that the token
    is accepted.

    hidden: hidden size of the draft model; vocab: its vocabulary size, for the config; layers: number of
    residual blocks.
    """

    def __init__(self, hidden: int, vocab: int, layers: int = 3):
        super().__init__()
        self.hidden = hidden
        self.vocab = vocab
        self.depth = layers
        self.model = nn.Sequential(*(ResidualBlock(hidden) for _ in range(layers)), nn.Linear(hidden, 2))

    def logit(self, states: Tensor) -> Tensor:
        """Return the log odds [...] of acceptance for hidden states [..., hidden]: the difference of the
        two logits."""
        kind = self.model[-1].weight.dtype
        refused, accepted = self.model(states.to(kind)).unbind(-1)  # pyright: ignore[reportCallIssue, reportArgumentType]
        return accepted - refused

    def forward(self, states: Tensor) -> Tensor:
        """Return the probability [...] that the token after which each hidden state [..., hidden] was
        computed is accepted."""
        return self.logit(states).sigmoid()

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of this head."""
        return {
            "model_type": ACCEPTANCE,
            "draft_hidden_size": self.hidden,
            "vocab_size": self.vocab,
            "num_layers": self.depth,
        }


def features(probs: Tensor, depth: Tensor, top: int, long: int) -> Tensor:
    """Return the classifier's input [..., top + 2] for distributions probs [..., vocab]: the ``top``
    largest probabilities, the entropy, and the depth [...] divided by ``long``."""
    entropy = -(probs * probs.clamp_min(1e-37).log()).sum(-1, keepdim=True)  # half the time of xlogy
    return torch.cat([probs.topk(top, dim=-1)[0], entropy, depth[..., None].to(probs.dtype) / long], -1)


class AcceptanceClassifier(nn.Module):
    """DISCO's classifier, an nn.Module: from a draft token's distribution and depth, the probability that
    the token is accepted, to decide whether to continue drafting.

    top: number of largest probabilities used; inner: width between the two layers.
    """

    def __init__(self, vocab: int, top: int = 10, inner: int = 32):
        super().__init__()
        self.vocab = vocab
        self.top = min(top, vocab)
        self.long = LONG
        self.first, self.second = nn.Linear(self.top + 2, inner), nn.Linear(inner, 1)

    def logit(self, probs: Tensor, depth: Tensor) -> Tensor:
        """Return the log odds [...] of acceptance for draft distributions [..., vocab] and the tokens'
        depths [...], from 0."""
        return self.second(
            F.relu(self.first(features(probs, depth, self.top, self.long).to(self.first.weight.dtype)))
        )[..., 0]

    def forward(self, probs: Tensor, depth: Tensor) -> Tensor:
        """Return the probability [...] that the token sampled from each draft distribution is accepted."""
        return self.logit(probs, depth).sigmoid()

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of this classifier."""
        return {
            "model_type": DISCO,
            "vocab_size": self.vocab,
            "top": self.top,
            "inner": self.first.out_features,
        }


class LengthHead(nn.Module):
    """AdaEAGLE's network, an nn.Module: predicts how many tokens of the next draft will be accepted.

    hidden: hidden size of the target; inner: width of the layers; most: longest draft it was trained to
    predict.
    """

    def __init__(self, hidden: int, vocab: int, inner: int = 128, most: int = 8):
        super().__init__()
        self.hidden = hidden
        self.vocab = vocab
        self.most = most
        self.first, self.last = nn.Linear(2 * hidden, inner), nn.Linear(inner, 1)
        self.middle = nn.ModuleList(ResidualBlock(inner) for _ in range(2))

    def forward(self, embeds: Tensor, states: Tensor) -> Tensor:
        """Return the expected number of accepted tokens [...], from the embedding and the target's final
        hidden state, both [..., hidden], of the token before the last."""
        x = F.silu(self.first(torch.cat([embeds, states], -1).to(self.first.weight.dtype)))
        for layer in self.middle:
            x = layer(x)
        return F.softplus(self.last(x)[..., 0])

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of this network."""
        sizes = {"hidden_size": self.hidden, "vocab_size": self.vocab, "inner": self.first.out_features}
        return {"model_type": LENGTH, **sizes, "most": self.most}


def acceptance_loss(logits: Tensor, passes: Tensor, refused: float) -> Tensor:
    """Return the weighted mean cross-entropy of log odds ``logits`` [n] against acceptance probabilities
    ``passes`` [n]; a rejection weighs ``refused`` times as much as an acceptance."""
    weights = refused * (1 - passes) + passes
    return (
        -(
            passes * F.logsigmoid(logits.float()) + refused * (1 - passes) * F.logsigmoid(-logits.float())
        ).sum()
        / weights.sum()
    )


def build(target: TargetInfo, hparams: dict[str, Any]) -> AcceptanceHead | AcceptanceClassifier | LengthHead:
    """Return an untrained network. target: facts about the draft model, or about the target for AdaEAGLE.
    hparams["kind"] selects the network and its other keys: AdaEAGLE ``inner`` (width) and ``most`` (longest
    draft); DISCO ``top`` (number of largest probabilities read) and ``inner``; SpecDec++ ``layers``."""
    if hparams["kind"] == LENGTH:
        return LengthHead(target.hidden, target.vocab, hparams["inner"], hparams["most"])
    if hparams["kind"] == DISCO:
        return AcceptanceClassifier(target.vocab, hparams["top"], hparams["inner"])
    return AcceptanceHead(target.hidden, target.vocab, hparams["layers"])


def load(folder: str | Path, target: TargetInfo) -> AcceptanceHead | AcceptanceClassifier | LengthHead:
    """Load the network of a checkpoint folder; the kind follows from its config.json. target: facts about
    the target. Raises ModelError."""
    weights, config = HeadWeights(Path(folder), target), config_of(Path(folder))
    kind = config.get("model_type")
    found = (
        _length(weights, config, target)
        if kind == LENGTH
        else _classifier(weights, config, target)
        if kind == DISCO
        else (_acceptance(weights, target))
    )
    weights.check_none_unread()
    return found


def _length(weights: HeadWeights, config: dict[str, Any], target: TargetInfo) -> LengthHead:
    inner, most = weights.shape("first.weight")[0], config.get("most")
    if type(most) is not int or most < 1:
        raise ModelError(
            f"config.json of {weights.title} says most is {str(most)[:40]}, where a number of tokens must stand",
            "draft_length.most",
        )
    made = LengthHead(target.hidden, target.vocab, inner, most)
    return fill(
        made, {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}, target
    )


def _classifier(weights: HeadWeights, config: dict[str, Any], target: TargetInfo) -> AcceptanceClassifier:
    inner, fields = weights.shape("first.weight")
    if fields < 3 or fields - 2 > target.vocab or config.get("top", fields - 2) != fields - 2:
        raise ModelError(
            f"{weights.title} reads {fields} numbers a token, and its config.json says top {config.get('top')}: "
            "its probabilities, the entropy and the place must be as many",
            "draft_length.fields",
        )
    tensors = {
        "first.weight": weights.get("first.weight", inner, fields),
        "first.bias": weights.get("first.bias", inner),
        "second.weight": weights.get("second.weight", 1, inner),
        "second.bias": weights.get("second.bias", 1),
    }
    return fill(AcceptanceClassifier(target.vocab, fields - 2, inner), tensors, target)


def _acceptance(weights: HeadWeights, target: TargetInfo) -> AcceptanceHead:
    last = max(weights.indices(r"model\.(\d+)\.weight"), default=-1)
    if last < 0:
        raise ModelError(
            f"{weights.title} holds no acceptance head: there is no matrix named model.N.weight",
            "draft_length.other_kind",
        )
    hidden = weights.shape(f"model.{last}.weight")[-1]
    tensors = {
        f"model.{last}.weight": weights.get(f"model.{last}.weight", 2, hidden),
        f"model.{last}.bias": weights.get(f"model.{last}.bias", 2),
    }
    there = weights.indices(r"model\.(\d+)\.linear\.weight")
    if last and not there:
        raise ModelError(f"{weights.title} lacks the weight model.0.linear.weight", "head.lacks_weight")
    for i in range(last):
        at = i if i in there else there[0]
        tensors[f"model.{i}.linear.weight"] = weights.get(f"model.{at}.linear.weight", hidden, hidden)
        tensors[f"model.{i}.linear.bias"] = weights.get(f"model.{at}.linear.bias", hidden)
    return fill(AcceptanceHead(hidden, target.vocab, last), tensors, target)
