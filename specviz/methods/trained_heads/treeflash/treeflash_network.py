"""TreeFlash's network: a hidden state of a block drafter, corrected by the token before its position
(2606.03819).

d(SiLU(gate) * up) of [norm(embedding of the token before), state] is added to the position's state before
the last norm; then the norm and the target's output matrix follow. At drafting the tokens before a position
are the top tokens of the position before it, so that all corrections are computed at once. Parameter names
are those of the authors' code (``ar_approximation.*``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....core import token_tensor
from ....drafters.heads.path_scores import Block, PathScores
from ....drafters.heads.reduced_output import reduced_head
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from ....trees import top_k


class SwiGLU(nn.Module):
    """TreeFlash's gated feed-forward, an nn.Module: embeddings of the tokens before and the block drafter's
    hidden states, both [..., hidden] -> the correction [..., hidden] of the hidden states. inner: inner
    width."""

    def __init__(self, hidden: int, inner: int):
        super().__init__()
        self.ug, self.d = nn.Linear(2 * hidden, 2 * inner), nn.Linear(inner, hidden, bias=False)
        nn.init.zeros_(self.d.weight)
        self.norm = nn.RMSNorm(hidden, eps=1e-6)

    def forward(self, embeds: Tensor, states: Tensor) -> Tensor:
        """Return the correction [..., hidden] for embeddings and states [..., hidden]."""
        up, gate = self.ug(torch.cat([self.norm(embeds), states], -1)).chunk(2, -1)
        return self.d(F.silu(gate) * up)


class TreeFlash(nn.Module):
    """TreeFlash's network (2606.03819), an nn.Module: it corrects a block drafter's hidden states by the
    token before their position. config: hidden_size, treeflash_inner."""

    reads_text = False

    def __init__(self, config: dict[str, Any], name: str = "TreeFlash's network"):
        super().__init__()
        try:
            d, inner = int(config["hidden_size"]), int(config["treeflash_inner"])
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        self.config, self.ar_approximation = config, SwiGLU(d, inner)

    def with_previous(self, previous: int) -> TreeFlashCorrection:
        """Return the Correction that considers the ``previous`` top tokens of the position before."""
        return TreeFlashCorrection(self, previous)


class TreeFlashCorrection:
    """TreeFlash's Correction of a block drafter: each position is corrected for each of the ``previous``
    top tokens of the position before. head: the network."""

    reads_text = False

    def __init__(self, head: TreeFlash, previous: int):
        self.head, self.previous = head, previous

    def open(self, block: Block) -> PathScores:
        """Return the corrected scores of one round's block."""
        return TreeFlashScores(block, self.head, self.previous)


class TreeFlashScores(PathScores):
    """Corrected logits of a position after each of the ``previous`` top tokens of the position before; -inf
    after any other token, which therefore gets no children."""

    def __init__(self, block: Block, head: TreeFlash, previous: int):
        super().__init__(block)
        self.head = head
        self.before = top_k(block.logits[:-1], min(previous, block.logits.shape[-1]))[
            1
        ]  # [places - 1, previous]
        self.rows: Tensor | None = None
        self.restricted = reduced_head(block.target)
        if self.restricted is not None:
            self.ids = self.restricted.tokens.expand(len(block.states), -1)

    def step(self, position: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        if position == 0:
            self.rows = self._corrected(tokens[:1])
            return self.rows[:1].expand(len(tokens), -1), carry
        assert self.rows is not None  # the root came first
        same = self.before[position - 1] == tokens[:, None]
        at = 1 + (position - 1) * self.before.shape[1] + same.int().argmax(-1)
        return self.rows[at].masked_fill(~same.any(-1, keepdim=True), -torch.inf), carry

    def _corrected(self, root: Tensor) -> Tensor:
        """Return logits [1 + (positions - 1) * previous, vocab] of the first position and of the others
        after each token before them."""
        block, each = self.block, self.before.shape[1]
        places = token_tensor(
            root.device, [0, *(position for position in range(1, len(block.states)) for _ in range(each))]
        )
        embeds = block.target.embed(torch.cat([root, self.before.flatten()])).to(block.states)
        raw = block.raw[places] + self.head.ar_approximation(embeds, block.states[places])
        output = block.target.head if self.restricted is None else self.restricted.narrow
        return output(block.norm(raw))


def build(target: TargetInfo, hparams: dict[str, Any]) -> TreeFlash:
    """Return an untrained network for a target. hparams: treeflash_inner."""
    config = {
        "hidden_size": target.hidden,
        "vocab_size": target.vocab,
        "treeflash_inner": hparams["treeflash_inner"],
    }
    return TreeFlash(config, f"TreeFlash's network of {target.name}")


def load(folder: Path, target: TargetInfo) -> TreeFlash:
    """Load the network of a checkpoint folder. Raises ModelError."""
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights = HeadWeights(folder, target)
    made = TreeFlash({"hidden_size": target.hidden, **config_of(folder)}, folder.name)
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
