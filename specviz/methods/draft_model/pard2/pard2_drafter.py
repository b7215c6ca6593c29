"""Draft a block with one pass over mask tokens of a draft model that reads the target's hidden states (PARD-2,
2605.08632)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....checkpoints.weights import ModelError
from ....core import CapableTarget, Outcome, Scores, State, common_prefix_length, select_rows
from ....drafters.model.masked import MaskedDraft


class InformedMaskedDraft(MaskedDraft):
    """PARD's drafter; the draft model also reads the target's states one position behind each token of the text.
    model: PARD's draft model; projection: TargetStates."""

    needs = frozenset({"tap:layer"})
    restartable = False  # there are no hidden states of unverified text

    def __init__(self, model: Any, projection: Any):
        super().__init__(model)
        width = model.sizes.hidden
        if projection.target_proj.out_features != width:
            raise ModelError(
                f"PARD-2's projection gives {projection.target_proj.out_features} numbers, and PARD's draft model "
                f"reads {width}",
                "pard2.width",
            )
        self.projection = projection
        self.hidden_states = frozenset(projection.hidden_states)
        self.known: list[
            Tensor | None
        ] = []  # what is added to the token at each position; None: nothing is known

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        kept = common_prefix_length(self.text, state.tokens)
        self.known = self.known[:kept]
        self.known += [None] * (len(state.tokens) - len(self.known))
        self._learn(prefill.first_position, self._projected(prefill))
        super().start(state, target, prefill)

    def observe(self, state: State, outcome: Outcome) -> None:
        rows = select_rows(self._projected(outcome.scores), outcome.kept)
        self.known += [None] * (len(state.tokens) - len(self.known))
        self._learn(len(state.tokens) - 1 - len(rows), rows)

    def _learn(self, first: int, rows: Tensor) -> None:
        """Keep projected states; row i is of position first + i and goes to the token after it."""
        for at, row in enumerate(rows, first + 1):
            if at < len(self.known) and self.known[at] is None:
                self.known[at] = row

    def _projected(self, scores: Scores) -> Tensor:
        with torch.inference_mode():
            states = torch.cat([scores.hidden_states[name] for name in self.projection.hidden_states], -1)
            return self.projection(states.to(self.projection.target_proj.weight.dtype))

    def added(self, first: int, count: int) -> Tensor | None:
        found = [self.known[at] if at < len(self.known) else None for at in range(first, first + count)]
        width = next((row for row in found if row is not None), None)
        if width is None:
            return None
        return torch.stack([torch.zeros_like(width) if row is None else row for row in found])
