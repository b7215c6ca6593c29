"""Networks on the target's final hidden states that decide whether a drafted token or reasoning step, which
differs from the target's own choice, is good enough to keep.

Judge decoding (Bachmann et al. 2501.19309): a linear layer gives the probability that the token last
processed is good. Reward-guided speculative decoding (Liao et al. 2501.19324) uses a reward model; here it
is a small head on the target, and a step's reward is the mean of its tokens' scores. No weights of either
were published; parameter names are this project's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.weights import ModelError
from .heads import HeadWeights, TargetInfo, check_fit, config_of, fill

JUDGE = "judge"  # kinds of networks
REWARD = "reward"


class JudgeHead(nn.Module):
    """Judge decoding's linear layer, an nn.Module: from the target's final hidden states, the probability
    that the token is good enough to keep."""

    def __init__(self, hidden: int, vocab: int):
        super().__init__()
        self.hidden = hidden
        self.vocab = vocab
        self.proj = nn.Linear(hidden, 1)

    def logit(self, states: Tensor) -> Tensor:
        """Return the log odds [...] for hidden states [..., hidden] at the tokens to judge."""
        return self.proj(states.to(self.proj.weight.dtype))[..., 0]

    def forward(self, states: Tensor) -> Tensor:
        """Return the probability [...] that the token at each hidden state [..., hidden] is good enough to
        keep."""
        return self.logit(states).sigmoid()

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of this network."""
        return {"model_type": JUDGE, "hidden_size": self.hidden, "vocab_size": self.vocab}


class RewardHead(nn.Module):
    """A reward head, an nn.Module of two layers: scores a reasoning step from the target's hidden states at
    its tokens.

    inner: width between the two layers.
    """

    def __init__(self, hidden: int, vocab: int, inner: int = 64):
        super().__init__()
        self.hidden, self.vocab = hidden, vocab
        self.first, self.second = nn.Linear(hidden, inner), nn.Linear(inner, 1)

    def logit(self, states: Tensor) -> Tensor:
        """Return the log odds [...] of steps, from hidden states [..., tokens, hidden] at their tokens."""
        return self.second(F.silu(self.first(states.to(self.first.weight.dtype))))[..., 0].mean(-1)

    def forward(self, states: Tensor) -> Tensor:
        """Return the reward [...] of steps, between 0 and 1, from hidden states [..., tokens, hidden]."""
        return self.logit(states).sigmoid()

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of this network."""
        return {
            "model_type": REWARD,
            "hidden_size": self.hidden,
            "vocab_size": self.vocab,
            "inner": self.first.out_features,
        }


def build(target: TargetInfo, hparams: dict[str, Any]) -> JudgeHead | RewardHead:
    """Return an untrained network. hparams: kind ("judge" or "reward"), and inner (width between the
    layers) for a reward head."""
    return (
        JudgeHead(target.hidden, target.vocab)
        if hparams["kind"] == JUDGE
        else RewardHead(target.hidden, target.vocab, hparams["inner"])
    )


def load(folder: str | Path, target: TargetInfo) -> JudgeHead | RewardHead:
    """Load the network of a checkpoint folder; its config.json gives the kind. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights, config = HeadWeights(folder, target), config_of(folder)
    if config.get("model_type") not in (JUDGE, REWARD):
        raise ModelError(
            f"{folder.name} is no judge and no reward head: its model_type is {str(config.get('model_type'))[:40]}",
            "head.other_kind",
        )
    inner = weights.shape("first.weight")[0] if config["model_type"] == REWARD else 0
    made = build(target, {"kind": config["model_type"], "inner": inner})
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
