"""Draft a block with one forward pass over mask tokens (PARD, An et al. 2504.18583)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core import Budget, Drafter, DraftTree, Scores, State, Target, common_prefix_length
from .chain import draw_independent


class MaskedDraft(Drafter):
    """Drafter of a chain with one forward pass of a draft model over the uncached tokens, followed by a
    mask token for every draft token except the first (PARD, An et al. 2504.18583). Each draft token is
    sampled independently. ``text``: the tokens in the draft model's KV cache."""

    def __init__(self, model: Any):
        self.rows, self.vocab = model.open(), model.vocab
        self.text: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        if max(state.tokens) < self.vocab:
            self._guesses(state.tokens, 0)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if budget.gamma < 1 or max(state.tokens) >= self.vocab:
            return DraftTree()
        return draw_independent(self._guesses(state.tokens, budget.gamma - 1), state, budget)

    def added(self, first: int, count: int) -> Tensor | None:
        """Return what is added to the embeddings of ``count`` tokens of the text from position ``first`` on, [count,
        hidden]; None for nothing."""
        return None

    def _guesses(self, tokens: list[int], masks: int) -> Tensor:
        """Return logits [1 + masks, vocab] after the text."""
        # the last token is always recomputed: its row predicts the first draft token
        held = min(common_prefix_length(self.text, tokens), len(tokens) - 1)
        self.rows.crop(held)
        with torch.inference_mode():
            rows = self.rows.draft(tokens[held:], masks, self.added(held, len(tokens) - held))
        self.text = list(tokens)
        return rows
