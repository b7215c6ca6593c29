"""Scores of a block's places that depend on the drafted tokens before them.

A block drafter predicts every place of a block without knowing what the places before it became. A correction turns these
predictions into scores of a place given the path: the token before it (DSpark, TreeFlash, LiLiCorr, DFlash2, TAPS) or all of the path
(Domino). Chains and trees use one interface, so that each correction can draft either.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ...core import CapableTarget, State
from ...trees import best


@dataclass(frozen=True)
class Block:
    """One round's block: states [places, hidden] after the drafter's last norm, ``raw`` the same before it, ``norm`` that norm;
    logits [places, vocab]; text [hidden]: the drafter's projected hidden state of the last text token before the root, for a
    correction that reads it."""

    target: CapableTarget
    states: Tensor
    raw: Tensor
    norm: Callable[[Tensor], Tensor]
    logits: Tensor
    text: Tensor | None


class PathScores:
    """Scores of one block, here those of the drafter alone: places are independent.

    ids [places, m]: the candidates that are scored at each place, None for the whole vocabulary.
    """

    ids: Tensor | None = None

    def __init__(self, block: Block):
        self.block = block

    def __len__(self) -> int:
        return len(self.block.states)

    def start(self) -> Tensor:
        """Return what is known before the root was read, [1, width]: the carry of the first step."""
        return self.block.states.new_empty(1, 0)

    def step(self, place: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits [n, m] of a place, carry [n, width] of the next) after the tokens [n] that stand before the place, each on
        a path of its own with the carry [n, width]."""
        return self.block.logits[place].expand(len(tokens), -1), carry

    def whole(self, place: int, logits: Tensor) -> Tensor:
        """Return logits [n, m] of the candidates as logits [n, vocab], minus infinity for all other tokens."""
        if self.ids is None:
            return logits
        rows = logits.new_full((len(logits), self.block.logits.shape[-1]), -torch.inf)
        return rows.scatter_(1, self.ids[place].expand(len(logits), -1), logits)

    def top(self, place: int, logits: Tensor, width: int, paths: list[tuple[int, ...]], state: State) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and ids [n, width] of the most probable tokens after each path; the run's logits processors are
        applied. A token that cannot be drafted has minus infinity or NaN."""
        if state.processors or self.ids is None:
            return best(state.processed_rows(self.whole(place, logits), paths).log_softmax(-1), width)
        values, at = best(logits.log_softmax(-1), width)
        return values, self.ids[place][at]


class CandidateScores(PathScores):
    """Scores of each place's ``count`` top candidates; log_probs [places, m]: the drafter's own, over the whole vocabulary."""

    def __init__(self, block: Block, count: int):
        super().__init__(block)
        self.ids: Tensor
        values, self.ids = best(block.logits, min(count, block.logits.shape[-1]))
        self.base, self.log_probs = values, values - block.logits.logsumexp(-1, keepdim=True)

    def ranks(self, place: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rank of each token [n] among the place's candidates, and whether it is one of them."""
        same = self.ids[place] == tokens[:, None]
        return same.int().argmax(-1), same.any(-1)


class MarkovScores(PathScores):
    """A Markov head's low-rank bias, from the token before a place (DSpark)."""

    def __init__(self, block: Block, head: Any):
        super().__init__(block)
        self.head = head

    def step(self, place: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        states = self.block.states[place].expand(len(tokens), -1)
        return self.block.logits[place] + self.head.markov_w2(self.head.latent(tokens, states)), carry


class Correction(Protocol):
    """What corrects a block drafter's predictions. reads_text: whether it reads ``Block.text``."""

    @property
    def reads_text(self) -> bool: ...

    def open(self, block: Block) -> PathScores:
        """Return the scores of one round's block."""
        ...
