"""DFlash2's candidate selector: scores of neighbours among each position's top candidates.

S(a, b) = U(b) + <A(a) * H(h), B(b)>: U the position's logit of candidate b, a the token before it, h the position's hidden
state; A and B are tables with a row a token, H a matrix. Parameter names are those of the published checkpoints
(``candidate_selector.*``).
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....drafters.heads.path_scores import Block, CandidateScores, PathScores
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from ....models.weights import ModelError


class CandidateSelector(nn.Module):
    """The tables A and B [vocab, rank] and the matrix H [rank, hidden]."""

    def __init__(self, hidden: int, vocab: int, rank: int):
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.hidden_projection = nn.Linear(hidden, rank, bias=False)

    def forward(self, states: Tensor, before: Tensor, ids: Tensor) -> Tensor:
        """Return the correction of the logits of candidates ids [..., m], given the tokens before [...] and the hidden
        states [..., hidden]."""
        query = self.predecessor_codebook[before] * self.hidden_projection(states)
        return (self.successor_codebook[ids] * query[..., None, :]).sum(-1)


class Selector(nn.Module):
    """DFlash2's network. config: hidden_size, vocab_size, selector_rank, selector_top_k."""

    reads_text = False

    def __init__(self, config: dict[str, Any], name: str = "the DFlash2 selector"):
        super().__init__()
        try:
            d, vocab, rank, self.top_k = (int(config[key]) for key in ("hidden_size", "vocab_size", "selector_rank", "selector_top_k"))
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        self.config = config
        self.candidate_selector = CandidateSelector(d, vocab, rank)

    @torch.no_grad()
    def begin(self, embedding: Tensor, output: Tensor) -> None:
        """Initialise the weights for training: the tables along directions of the target's embedding and output matrix
        [vocab, hidden], with a zero correction."""
        part = self.candidate_selector
        for table, rows in ((part.predecessor_codebook, embedding), (part.successor_codebook, output)):
            mixed = rows @ torch.randn(rows.shape[1], table.shape[1], device=rows.device)
            table.copy_(mixed / mixed.std())
        part.hidden_projection.weight.zero_()

    def open(self, block: Block) -> PathScores:
        """Return the scores of one round's block."""
        return SelectorScores(block, self)


class SelectorScores(CandidateScores):
    """Candidates' logits plus the selector's score of the transition from the token before."""

    def __init__(self, block: Block, head: Selector):
        super().__init__(block, head.top_k)
        self.part = head.candidate_selector

    def step(self, place: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        states = self.block.states[place].expand(len(tokens), -1)
        return self.base[place] + self.part(states, tokens, self.ids[place].expand(len(tokens), -1)), carry


def build(body: TargetInfo, hparams: dict[str, Any]) -> Selector:
    """Return an untrained selector. hparams: selector_rank, candidates."""
    config = {"selector_rank": hparams["selector_rank"], "selector_top_k": hparams["candidates"]}
    return Selector({"hidden_size": body.hidden, "vocab_size": body.vocab, **config}, f"the DFlash2 selector of {body.name}")


def load(folder: Path, body: TargetInfo) -> Selector:
    """Load the selector of a folder. Raises ModelError."""
    check_fit(folder, body.name, body.hidden, body.vocab)
    weights = HeadWeights(folder, body)
    made = Selector({"hidden_size": body.hidden, "vocab_size": body.vocab, **config_of(folder)}, folder.name)
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, body)
