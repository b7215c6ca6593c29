"""Drafting a block with one pass of a model that reads mask tokens (PARD, An et al. 2504.18583)."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core import Budget, Drafter, DraftTree, Scores, State, Target, common
from .chain import drawn_apart


class MaskedDraft(Drafter):
    """One path: the model reads what it has not read of the text, and behind it a mask for every token but the first. It follows
    any state.tokens; ``text``: the tokens whose rows it holds."""

    def __init__(self, model: Any):
        self.rows, self.vocab = model.open(), model.vocab
        self.text: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        if max(state.tokens) < self.vocab:
            self._guesses(state.tokens, 0)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if budget.gamma < 1 or max(state.tokens) >= self.vocab:
            return DraftTree()
        return drawn_apart(self._guesses(state.tokens, budget.gamma - 1), state, budget)

    def _guesses(self, tokens: list[int], masks: int) -> Tensor:
        """Logits [1 + masks, vocab] behind a text."""
        # the root is read again even where it is held: its row guesses the first token
        held = min(common(self.text, tokens), len(tokens) - 1)
        self.rows.crop(held)
        with torch.inference_mode():
            rows = self.rows.draft(tokens[held:], masks)
        self.text = list(tokens)
        return rows
