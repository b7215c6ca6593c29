"""Draft a block with one pass of a head on the target's hidden states and mask states (P-EAGLE)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....core import Budget, CapableTarget, Drafter, DraftTree, Outcome, Scores, State, select_rows
from ....drafters.heads.features import FeatureModel
from ....drafters.model.chain import draw_independent


class PEagleModel(FeatureModel):
    """P-EAGLE's head on the target's hidden states during one run. Pairs of token and hidden states that
    are not in its KV cache yet are processed in the same pass as the mask positions after them."""

    def start(self, target: CapableTarget, tokens: list[int], prefill: Scores) -> None:
        super().start(target, tokens, prefill)
        self._last: Tensor | None = (
            None  # states of the pair read last: its row is read again where a round brought none
        )

    def block(self, tokens: list[int], max_tokens: int) -> Tensor | None:
        """Run the head and return logits [max_tokens, vocab] for the ``max_tokens`` tokens after the root;
        None if hidden states before the root are missing."""
        if tokens != self.tokens or not (self._waiting or self._last is not None):
            return None
        with torch.inference_mode():
            if self._waiting:
                states, self._waiting = torch.cat(self._waiting), []
            else:
                assert self._last is not None
                states = self._last
                self.rows.crop(self.rows.count - 1)
            self._last = states[-1:]
            embeds, mask = (
                self.net.embed(ids, self.target.embed)
                for ids in (tokens[-len(states) :], [self.net.mask_token])
            )
            return self.net.logits(
                self.rows.block(embeds, states, mask, max_tokens - 1).to(states.dtype), self.target.head
            )


class OnePassFeatures(Drafter):
    """Drafter of a chain with P-EAGLE's head, which predicts all its tokens in one pass; each is sampled
    independently."""

    restartable = False  # of a text that was not verified it has no states

    def __init__(self, head: Any):
        self.hidden_states, self.needs = (
            frozenset(head.hidden_states),
            frozenset({"tap:layer", "embed", "head"}),
        )
        self.model = PEagleModel(head)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.model.start(target, state.tokens, prefill)
        self.model.block(state.tokens, 1)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        rows = self.model.block(state.tokens, budget.gamma) if budget.gamma > 0 else None
        return DraftTree() if rows is None else draw_independent(rows, state, budget)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.model.append_features(
            select_rows(self.model.read_features(outcome.scores), outcome.kept), list(outcome.committed)
        )
