"""Blockwise parallel decoding's proposal heads: one layer on the target's last hidden state, split among
the heads (Stern et al. 1811.03115).

The layer is as wide as all heads together. Head i applies ReLU and its own matrix to its slice, adds the
hidden state, and passes the sum to the target's output matrix. In the paper the model's own next-token
prediction also goes through the new layer; here the target is unchanged, which keeps its output, and the
heads predict the tokens after it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.heads import HeadWeights, TargetInfo, fill


class Blockwise(nn.Module):
    """The draft heads of blockwise parallel decoding (Stern et al. 1811.03115), an nn.Module: target's
    final hidden state -> logits of the next ``heads`` tokens.

    heads: number of predicted tokens after the target's own next token; inner: width of each head's slice
    of the shared layer."""

    def __init__(self, hidden: int, vocab: int, heads: int, inner: int):
        super().__init__()
        self.hidden = hidden
        self.vocab = vocab
        self.inner = inner
        self.layer = nn.Linear(hidden, heads * inner)
        outputs = [nn.Linear(inner, hidden) for _ in range(heads)]
        self.out = nn.ModuleList(outputs)
        for out in outputs:
            nn.init.zeros_(out.weight)
            nn.init.zeros_(out.bias)

    def __len__(self) -> int:
        return len(self.out)

    def states(self, states: Tensor, index: int) -> Tensor:
        """Return the hidden states [..., hidden] of head ``index``, the input of the output matrix, for the
        target's final hidden states [..., hidden]."""
        part = slice(index * self.inner, (index + 1) * self.inner)
        return states + self.out[index](
            F.relu(F.linear(states, self.layer.weight[part], self.layer.bias[part]))
        )

    def forward(self, state: Tensor, depth: int, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return logits [depth, vocab] of the first ``depth`` heads for a final hidden state [hidden] of
        the target. head: applies the target's output matrix."""
        parts = F.relu(self.layer(state)).unflatten(-1, (len(self), self.inner))
        return head(torch.stack([state + out(part) for out, part in zip(self.out[:depth], parts)]))

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix [vocab, hidden] that head ``index`` uses in training: the target's,
        ``targets``."""
        return targets

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of these heads."""
        return {
            "model_type": "blockwise",
            "hidden_size": self.hidden,
            "vocab_size": self.vocab,
            "num_heads": len(self),
            "inner_size": self.inner,
        }


def build(target: TargetInfo, hparams: dict[str, Any]) -> Blockwise:
    """Return untrained heads for a target. hparams: heads, inner."""
    return Blockwise(target.hidden, target.vocab, hparams["heads"], hparams["inner"])


def load(folder: Path, target: TargetInfo) -> Blockwise:
    """Load the heads of a checkpoint folder in this project's layout. Raises ModelError."""
    weights = HeadWeights(folder, target)
    heads = weights.indices(r"out\.(\d+)\.weight")
    if not heads or heads != list(range(len(heads))):
        raise ModelError(f"{folder.name} holds no heads for blockwise parallel decoding", "head.other_kind")
    hidden, inner = weights.shape("out.0.weight")
    if hidden != target.hidden:
        raise ModelError(
            f"{folder.name} does not fit {target.name}: it reads states of {hidden} numbers, and {target.name} has "
            f"{target.hidden}",
            "head.states",
        )
    made = Blockwise(target.hidden, target.vocab, len(heads), inner)
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
