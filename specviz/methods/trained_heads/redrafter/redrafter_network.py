"""ReDrafter: one small recurrent head, the same at every step, on the target's last hidden state (Zhang et
al. 2403.09919).

s = SiLU(W e(token) + U s + b) runs over the root and the drafted tokens, starting from zero; s concatenated
with the target's hidden state passes residual blocks, x + SiLU(W x + b), and an output matrix. Embeddings
are the target's.

``load`` reads the authors' layout: config.json with hidden_size, exit_dim, num_draft_layers and rnn, and
``rnn_w.weight``, ``rnn_u.weight``, ``rnn_u.bias``, ``lm_head.0.linear.weight`` and so on,
``lm_head.2.weight`` for the output matrix after two blocks, and ``input_proj`` if exit_dim is not twice the
hidden size. This project's heads may omit the output matrix and use the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.heads import HeadWeights, TargetInfo, config_of, fill
from ....models.hydra import Block

LENGTH = 5  # tokens ahead that the authors' training teaches


class ReDrafter(nn.Module):
    """ReDrafter's recurrent draft head (Zhang et al. 2403.09919), an nn.Module.

    hidden: the target's hidden size; exit: width of the input of the output matrix; layers: number of
    residual blocks; own: whether it has an output matrix of its own; recurrent: False: the states are sums
    of embeddings; length: tokens ahead in training; biased: whether input_proj has a bias."""

    def __init__(
        self,
        hidden: int,
        vocab: int,
        exit: int,
        layers: int = 2,
        own: bool = True,
        recurrent: bool = True,
        length: int = LENGTH,
        biased: bool = True,
    ):
        super().__init__()
        self.hidden = hidden
        self.vocab = vocab
        self.exit = exit
        self.length = length
        self.recurrent = recurrent
        self.own = own
        if recurrent:
            self.rnn_w, self.rnn_u = nn.Linear(hidden, hidden, False), nn.Linear(hidden, hidden)
        self.input_proj = nn.Linear(2 * hidden, exit, biased) if exit != 2 * hidden else None
        self.lm_head = nn.ModuleList(
            [Block(exit) for _ in range(layers)] + ([nn.Linear(exit, vocab, False)] if own else [])
        )

    def __len__(self) -> int:
        return self.length

    def step(self, states: Tensor, rows: Tensor) -> Tensor:
        """Return the recurrent states [n, hidden] after one more token each. states [n, hidden]: those
        before; rows [n, hidden]: the tokens' embeddings."""
        return F.silu(self.rnn_w(rows) + self.rnn_u(states)) if self.recurrent else states + rows

    def exits(self, last: Tensor, states: Tensor) -> Tensor:
        """Return the inputs [n, exit] of the output matrix. last [n, hidden]: the target's final hidden
        states; states [n, hidden]: the recurrent states."""
        x = torch.cat([last, states], -1)
        x = x if self.input_proj is None else self.input_proj(x)
        for block in self.lm_head[: len(self.lm_head) - self.own]:
            x = block(x)
        return x

    def logits(self, last: Tensor, states: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return logits [n, vocab] of the next token; arguments as in ``exits``. head: applies the target's
        output matrix, used if the head has none of its own."""
        rows = self.exits(last, states)
        return self.lm_head[-1](rows) if self.own else head(rows)

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix for training, the same at every step; targets: the target's."""
        return cast(nn.Linear, self.lm_head[-1]).weight if self.own else targets

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of this head in the authors' layout."""
        return {
            "model_type": "recurrent_drafting_drafter",
            "hidden_size": self.hidden,
            "vocab_size": self.vocab,
            "exit_dim": self.exit,
            "num_draft_layers": len(self.lm_head) - self.own,
            "rnn": self.recurrent,
            "num_lookback_tokens": self.length,
        }


def build(target: TargetInfo, hparams: dict[str, Any]) -> ReDrafter:
    """Return an untrained head for a target. If it uses the target's output matrix, its inner width is the
    hidden size."""
    own = hparams["own_output"]
    exit = 2 * target.hidden if own else target.hidden
    return ReDrafter(
        target.hidden, target.vocab, exit, hparams["layers"], own, length=hparams["length_ahead"]
    )


def load(folder: Path, target: TargetInfo) -> ReDrafter:
    """Load the head of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    config, weights = config_of(folder), HeadWeights(folder, target)
    blocks = weights.indices(r"lm_head\.(\d+)\.linear\.weight")
    if not blocks or blocks != list(range(len(blocks))):
        raise ModelError(
            f"{folder.name} holds no ReDrafter head under any of the known names", "head.other_kind"
        )
    out = f"lm_head.{len(blocks)}.weight"
    wide, recurrent = weights.shape("lm_head.0.linear.weight")[0], "rnn_u.weight" in weights
    read = weights.shape("input_proj.weight")[-1] if "input_proj.weight" in weights else wide
    alien = f"{folder.name} does not fit {target.name}: it"
    if read != 2 * target.hidden:
        raise ModelError(
            f"{alien} reads states of {read / 2:g} numbers, and {target.name} has {target.hidden}",
            "head.states",
        )
    if out in weights and weights.shape(out)[0] != target.vocab:
        raise ModelError(
            f"the vocabulary of {alien} has {weights.shape(out)[0]} tokens, and {target.name} has {target.vocab}",
            "head.vocabulary",
        )
    if recurrent != bool(config.get("rnn", recurrent)):
        raise ModelError(
            f"config.json of {folder.name} says rnn {config['rnn']!r}, and its weights say otherwise",
            "redrafter.rnn",
        )
    made = ReDrafter(
        target.hidden,
        target.vocab,
        wide,
        len(blocks),
        out in weights,
        recurrent,
        biased="input_proj.bias" in weights,
    )
    if not made.own and wide != target.hidden:
        raise ModelError(f"{folder.name} lacks the weight {out}", "head.lacks_weight")
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
