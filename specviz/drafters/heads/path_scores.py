"""Scores of a block's positions that depend on the drafted tokens before them.

A block drafter predicts all positions of a block at once, without knowing the tokens at earlier positions. A correction
turns these predictions into scores given the path: given the token before (DSpark, TreeFlash, LiLiCorr, DFlash2, TAPS)
or all tokens before (Domino). Chains and trees use the same interface, so each correction can draft either.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ...core import CapableTarget, State
from ...trees import top_k


@dataclass(frozen=True)
class Block:
    """The block of one round. states [positions, hidden]: after the drafter's last norm; raw: before it; norm: that
    norm; logits [positions, vocab]; text [hidden]: the drafter's projected hidden state of the last text token before
    the root, for corrections that read it."""

    target: CapableTarget
    states: Tensor
    raw: Tensor
    norm: Callable[[Tensor], Tensor]
    logits: Tensor
    text: Tensor | None


class PathScores:
    """Scores of one block. This base class returns the drafter's own scores, in which positions are independent.

    ids [positions, m]: the candidate tokens of each position that are scored, None for the whole vocabulary.
    """

    ids: Tensor | None = None

    def __init__(self, block: Block):
        self.block = block

    def __len__(self) -> int:
        return len(self.block.states)

    def start(self) -> Tensor:
        """Return the initial recurrent state, before the root is read, [1, width]."""
        return self.block.states.new_empty(1, 0)

    def step(self, place: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits [n, m] of a position, recurrent states [n, width] for the next position) for n paths, each
        given by the last token on it (tokens [n]) and its recurrent state (carry [n, width])."""
        return self.block.logits[place].expand(len(tokens), -1), carry

    def whole(self, place: int, logits: Tensor) -> Tensor:
        """Expand logits [n, m] of the candidates to [n, vocab], minus infinity for all other tokens."""
        if self.ids is None:
            return logits
        rows = logits.new_full((len(logits), self.block.logits.shape[-1]), -torch.inf)
        return rows.scatter_(1, self.ids[place].expand(len(logits), -1), logits)

    def top(self, place: int, logits: Tensor, width: int, paths: list[tuple[int, ...]], state: State) -> tuple[Tensor, Tensor]:
        """Return (log-probabilities, ids), each [n, width], of the most probable tokens after each path, with the run's
        logits processors applied. A token that cannot be drafted has minus infinity or NaN."""
        if state.processors or self.ids is None:
            return top_k(state.process_draft_logits(self.whole(place, logits), paths).log_softmax(-1), width)
        values, at = top_k(logits.log_softmax(-1), width)
        return values, self.ids[place][at]


class CandidateScores(PathScores):
    """Scores of each position's ``count`` top candidates; log_probs [positions, m]: the drafter's own, over the whole
    vocabulary."""

    def __init__(self, block: Block, count: int):
        super().__init__(block)
        self.ids: Tensor
        values, self.ids = top_k(block.logits, min(count, block.logits.shape[-1]))
        self.base, self.log_probs = values, values - block.logits.logsumexp(-1, keepdim=True)

    def ranks(self, place: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rank of each token [n] among the position's candidates, and whether it is one of them."""
        same = self.ids[place] == tokens[:, None]
        return same.int().argmax(-1), same.any(-1)


class MarkovScores(PathScores):
    """A Markov head's low-rank bias, from the token before a position (DSpark)."""

    def __init__(self, block: Block, head: Any):
        super().__init__(block)
        self.head = head

    def step(self, place: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        states = self.block.states[place].expand(len(tokens), -1)
        return self.block.logits[place] + self.head.markov_w2(self.head.latent(tokens, states)), carry


class Correction(Protocol):
    """A network that corrects a block drafter's predictions. reads_text: whether it reads ``Block.text``."""

    @property
    def reads_text(self) -> bool: ...

    def open(self, block: Block) -> PathScores:
        """Return the scores of one round's block."""
        ...
