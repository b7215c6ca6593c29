"""BlockPilot's network: from the target's hidden state at the end of the prompt, the best draft length for
the whole answer (2606.31315). No weights were published; parameter names are this project's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill


class PromptLength(nn.Module):
    """A classifier of two layers with a residual, an nn.Module. hidden: of the target; inner: width;
    longest: draft lengths 1 to ``longest`` are its classes; dropout: during training."""

    def __init__(self, hidden: int, vocab: int, inner: int, longest: int, dropout: float = 0.2):
        super().__init__()
        self.hidden, self.vocab, self.longest = hidden, vocab, longest
        self.first, self.second = nn.Linear(hidden, inner), nn.Linear(inner, inner)
        self.last = nn.Linear(inner, longest)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        """Return logits [..., longest] of the draft lengths for hidden states [..., hidden]."""
        x = self.dropout(F.relu(self.first(states.to(self.first.weight.dtype))))
        x = x + self.dropout(F.relu(self.second(x)))
        return self.last(x)

    def length(self, state: Tensor) -> int:
        """Return the draft length for the hidden state [hidden] at the end of a prompt."""
        with torch.inference_mode():
            return 1 + int(self(state).argmax())

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of this network."""
        return {
            "model_type": "blockpilot",
            "hidden_size": self.hidden,
            "vocab_size": self.vocab,
            "inner": self.first.out_features,
            "longest": self.longest,
        }


def build(target: TargetInfo, hparams: dict[str, Any]) -> PromptLength:
    """Return an untrained network. hparams: inner, longest; optional: dropout."""
    return PromptLength(
        target.hidden, target.vocab, hparams["inner"], hparams["longest"], hparams.get("dropout", 0.2)
    )


def load(folder: str | Path, target: TargetInfo) -> PromptLength:
    """Load the network of a checkpoint folder. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights, longest = HeadWeights(folder, target), config_of(folder).get("longest")
    if type(longest) is not int or longest < 1:
        raise ModelError(
            f"config.json of {folder.name} says longest is {str(longest)[:40]}, where a number of tokens must stand",
            "blockpilot.longest",
        )
    made = PromptLength(target.hidden, target.vocab, weights.shape("first.weight")[0], longest)
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
