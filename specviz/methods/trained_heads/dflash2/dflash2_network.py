"""DFlash2's candidate selector: scores of neighbours among each position's top candidates.

S(a, b) = U(b) + <A(a) * H(h), B(b)>: U the position's logit of candidate b, a the token before it, h the
position's hidden state; A and B are tables with a row for each token, H a matrix. Parameter names are those
of the published checkpoints (``candidate_selector.*``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....checkpoints.weights import ModelError
from ....drafters.heads.path_scores import Block, CandidateScores, PathScores
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill


class CandidateSelector(nn.Module):
    """The selector's weights, an nn.Module: tables A and B [vocab, rank] and the matrix H [rank, hidden] of
    the score above."""

    def __init__(self, hidden: int, vocab: int, rank: int):
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.hidden_projection = nn.Linear(hidden, rank, bias=False)

    def forward(self, states: Tensor, before: Tensor, ids: Tensor) -> Tensor:
        """Return the correction [..., m] of the logits of the candidates ids [..., m]. before [...]: the
        token before each position; states [..., hidden]: the block drafter's hidden state of the
        position."""
        query = self.predecessor_codebook[before] * self.hidden_projection(states)
        return (self.successor_codebook[ids] * query[..., None, :]).sum(-1)


class Selector(nn.Module):
    """DFlash2's candidate selector as a Correction of a block drafter, an nn.Module. config: hidden_size,
    vocab_size, selector_rank, selector_top_k (candidates per position)."""

    reads_text = False

    def __init__(self, config: dict[str, Any], name: str = "the DFlash2 selector"):
        super().__init__()
        try:
            d, vocab, rank, self.top_k = (
                int(config[key]) for key in ("hidden_size", "vocab_size", "selector_rank", "selector_top_k")
            )
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        self.config = config
        self.candidate_selector = CandidateSelector(d, vocab, rank)

    @torch.no_grad()
    def begin(self, embedding: Tensor, output: Tensor) -> None:
        """Initialise the weights for training, so that the correction is zero: the tables along directions
        of the target's embedding and output matrix, both [vocab, hidden]."""
        part = self.candidate_selector
        for table, rows in ((part.predecessor_codebook, embedding), (part.successor_codebook, output)):
            mixed = rows @ torch.randn(rows.shape[1], table.shape[1], device=rows.device)
            table.copy_(mixed / mixed.std())
        part.hidden_projection.weight.zero_()

    def open(self, block: Block) -> PathScores:
        """Return the corrected scores of one round's block."""
        return SelectorScores(block, self)


class SelectorScores(CandidateScores):
    """Scores of a position's candidates: their logits plus the selector's score of the transition from the
    token before."""

    def __init__(self, block: Block, head: Selector):
        super().__init__(block, head.top_k)
        self.part = head.candidate_selector

    def step(self, position: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        states = self.block.states[position].expand(len(tokens), -1)
        return self.base[position] + self.part(
            states, tokens, self.ids[position].expand(len(tokens), -1)
        ), carry


def build(target: TargetInfo, hparams: dict[str, Any]) -> Selector:
    """Return an untrained selector for a target. hparams: selector_rank, candidates."""
    config = {"selector_rank": hparams["selector_rank"], "selector_top_k": hparams["candidates"]}
    return Selector(
        {"hidden_size": target.hidden, "vocab_size": target.vocab, **config},
        f"the DFlash2 selector of {target.name}",
    )


def load(folder: Path, target: TargetInfo) -> Selector:
    """Load the selector of a checkpoint folder. Raises ModelError."""
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights = HeadWeights(folder, target)
    made = Selector(
        {"hidden_size": target.hidden, "vocab_size": target.vocab, **config_of(folder)}, folder.name
    )
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
