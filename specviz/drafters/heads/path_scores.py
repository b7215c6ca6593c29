"""Scores of a block's positions that depend on the drafted tokens before them.

A block drafter predicts all positions of a block at once, without knowing the tokens at earlier positions.
A correction turns these predictions into scores given the path: given the token before (DSpark, TreeFlash,
LiLiCorr, DFlash2, TAPS) or all tokens before (Domino). Chains and trees use the same interface, so each
correction can draft either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ...core import CapableTarget, State
from ...trees import top_log_probs, top_with_sum


@dataclass(frozen=True)
class Block:
    """The output of a block drafter's network in one round. raw, states [positions, hidden]: its last
    hidden states before and after the final norm; norm: that norm, raw -> states; logits [positions,
    vocab]: of ``states``; text [hidden]: the network's projection of the target's hidden states at the last
    token before the root, for corrections that read it, else None."""

    target: CapableTarget
    states: Tensor
    raw: Tensor
    norm: Callable[[Tensor], Tensor]
    logits: Tensor
    text: Tensor | None


class PathScores:
    """Scores of the positions of one block, given the drafted tokens before them. This base class returns
    the block drafter's own scores, in which positions are independent; subclasses correct them.

    ids [positions, m]: the m candidate tokens of each position that are scored; None: the whole vocabulary,
    m = vocab."""

    ids: Tensor | None = None

    def __init__(self, block: Block):
        self.block = block

    def __len__(self) -> int:
        return len(self.block.states)

    def start(self) -> Tensor:
        """Return the initial recurrent state [1, width], before the root is processed; width 0 without a
        recurrence."""
        return self.block.states.new_empty(1, 0)

    def step(self, position: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Score ``position`` (0 first) after n paths. tokens [n]: the last token of each path; carry [n,
        width]: its recurrent state. Return (logits [n, m], recurrent states [n, width] for the next
        position)."""
        return self.block.logits[position].expand(len(tokens), -1), carry

    def expand_to_vocab(self, position: int, logits: Tensor) -> Tensor:
        """Return the logits [n, m] of a position's candidates as logits [n, vocab], -inf for all other
        tokens."""
        if self.ids is None:
            return logits
        rows = logits.new_full((len(logits), self.block.logits.shape[-1]), -torch.inf)
        return rows.scatter_(1, self.ids[position].expand(len(logits), -1), logits)

    def top_tokens(
        self, position: int, logits: Tensor, width: int, paths: list[tuple[int, ...]], state: State
    ) -> tuple[Tensor, Tensor]:
        """Return (log-probabilities, token ids), each [n, width], of the most probable tokens after each of
        n paths, given their logits [n, m] from ``step``. The run's logits processors are applied. A token
        that must not be drafted has -inf or NaN."""
        if state.processors or self.ids is None:
            wide = self.expand_to_vocab(position, logits)
            return top_log_probs(state.process_draft_logits(wide, paths), width)
        values, at = top_log_probs(logits, width)
        return values, self.ids[position][at]


class CandidateScores(PathScores):
    """Base class of corrections that score only the m = ``count`` top candidates of each position (``ids``
    [positions, m]).

    base, log_probs [positions, m]: the candidates' logits and log-probabilities by the block drafter,
    without correction; the latter are normalised over the whole vocabulary."""

    def __init__(self, block: Block, count: int):
        super().__init__(block)
        self.ids: Tensor
        values, self.ids, sums = top_with_sum(block.logits, min(count, block.logits.shape[-1]))
        self.base, self.log_probs = values, values - sums[:, None]

    def ranks(self, position: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return (rank of each token among the candidates of ``position``, whether it is one of them), both
        [n]; tokens [n]."""
        same = self.ids[position] == tokens[:, None]
        return same.int().argmax(-1), same.any(-1)


class MarkovScores(PathScores):
    """Scores corrected by DSpark's Markov head: a low-rank bias [vocab] computed from the token before a
    position is added to the logits."""

    def __init__(self, block: Block, head: Any):
        super().__init__(block)
        self.head = head

    def step(self, position: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        states = self.block.states[position].expand(len(tokens), -1)
        return self.block.logits[position] + self.head.markov_w2(self.head.latent(tokens, states)), carry


class Correction(Protocol):
    """A trained network that makes a block drafter's predictions depend on the drafted tokens before a
    position."""

    @property
    def reads_text(self) -> bool:
        """Whether the network reads ``Block.text``."""
        ...

    def open(self, block: Block) -> PathScores:
        """Return the corrected scores of one round's block."""
        ...
