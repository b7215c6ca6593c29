"""Networks on the target's states, after its last norm, that say whether what a draft model wrote may stand although the target
would have written something else.

Judge decoding (Bachmann et al. 2501.19309): one matrix tells from the state that has read a token the probability that it is a
good one. Reward-guided speculative decoding (Liao et al. 2501.19324) asks a reward model; here a small head on the target stands
for it: the mean of what it says of a step's tokens is the step's reward. No weights of either were published; the names are ours.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .heads import Body, HeadWeights, check_fit, config_of, fill
from .weights import ModelError

JUDGE, REWARD = "judge", "reward"


class Judge(nn.Module):
    def __init__(self, hidden: int, vocab: int):
        super().__init__()
        self.hidden, self.vocab, self.proj = hidden, vocab, nn.Linear(hidden, 1)

    def logit(self, states: Tensor) -> Tensor:
        """Log odds [...] from states [..., hidden] that have read the tokens."""
        return self.proj(states.to(self.proj.weight.dtype))[..., 0]

    def forward(self, states: Tensor) -> Tensor:
        """Chance [...] that the token which each state has read last is a good one."""
        return self.logit(states).sigmoid()

    @property
    def config(self) -> dict[str, Any]:
        return {"model_type": JUDGE, "hidden_size": self.hidden, "vocab_size": self.vocab}


class Reward(nn.Module):
    """A reward head: two layers that grade a step from the target's states.

    inner: width between the two layers.
    """

    def __init__(self, hidden: int, vocab: int, inner: int = 64):
        super().__init__()
        self.hidden, self.vocab = hidden, vocab
        self.first, self.second = nn.Linear(hidden, inner), nn.Linear(inner, 1)

    def logit(self, states: Tensor) -> Tensor:
        """Log odds [...] of steps from states [..., tokens, hidden] that have read their tokens."""
        return self.second(F.silu(self.first(states.to(self.first.weight.dtype))))[..., 0].mean(-1)

    def forward(self, states: Tensor) -> Tensor:
        """The reward [...] of steps, between 0 and 1."""
        return self.logit(states).sigmoid()

    @property
    def config(self) -> dict[str, Any]:
        return {"model_type": REWARD, "hidden_size": self.hidden, "vocab_size": self.vocab, "inner": self.first.out_features}


def build(body: Body, numbers: dict[str, Any]) -> Judge | Reward:
    """Return an untrained one. numbers: kind, for a reward head also inner."""
    return Judge(body.hidden, body.vocab) if numbers["kind"] == JUDGE else Reward(body.hidden, body.vocab, numbers["inner"])


def load(folder: str | Path, body: Body) -> Judge | Reward:
    """The network of a folder. Raises ModelError with one sentence."""
    folder = Path(folder)
    check_fit(folder, body.name, body.hidden, body.vocab)
    weights, config = HeadWeights(folder, body), config_of(folder)
    if config.get("model_type") not in (JUDGE, REWARD):
        raise ModelError(f"{folder.name} is no judge and no reward head: its model_type is {str(config.get('model_type'))[:40]}",
                         "head.other_kind")
    inner = weights.shape("first.weight")[0] if config["model_type"] == REWARD else 0
    made = build(body, {"kind": config["model_type"], "inner": inner})
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.none_left()
    return fill(made, found, body)
