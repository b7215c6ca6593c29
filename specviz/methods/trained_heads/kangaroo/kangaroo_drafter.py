"""Kangaroo: the target's first layers, an adapter and the target's output matrix draft a chain (Liu et al.
2404.18911).

Keys, values and hidden states of drafted tokens in the first layers stay in the target, uncommitted, and
verification continues from them. The adapter's KV cache has an entry per token, computed from the hidden
state at the exit. Entries of accepted tokens stay valid. One may be missing, that of the last token of a
fully accepted draft; it is computed from the hidden state that verification captured at that position."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....core import (
    IID,
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    Outcome,
    Scores,
    State,
    Step,
    TreeBuilder,
    common_prefix_length,
    never_stop,
    select_rows,
)
from ....drafters.heads.reduced_output import target_for_drafting
from ....drafters.model.chain import policy_probs
from ....trees import sample_token


class ExitAdapter(Drafter):
    """Drafter of a chain with Kangaroo's adapter (Liu et al. 2404.18911): the target's first layers, the
    adapter and the target's output matrix predict each token. The policy decides when to stop (the paper's
    second exit)."""

    needs = frozenset({"early", "head", "tap:layer"})
    restartable = False  # the exit stands on the target's own cache

    def __init__(self, adapter: Any):
        self.adapter = adapter
        self.rows = adapter.open()
        self.capture = f"layer:{adapter.exit}"
        self.hidden_states = frozenset({self.capture})
        self.read: list[int] = []  # tokens that have a row, from position rows.first on

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target, self.view = target_for_drafting(target, self.adapter), target.early(self.adapter.exit)
        states, at = prefill.hidden_states[self.capture], prefill.first_position
        if not len(states) and len(state.tokens) > 1:  # a target that kept its cache tells the last row again
            target.sync(state.tokens[:-1])
            again = target.sync(state.tokens)
            states, at = again.hidden_states[self.capture], again.first_position
        first = self.rows.first
        if (
            first <= at <= first + common_prefix_length(self.read, state.tokens[first:-1])
        ):  # what an earlier run read of this text is true
            self._crop(state.tokens[first:at])
        else:
            self.read = []
            self.rows.restart(at)
        self._waiting = [states] if len(states) else []
        before = state.tokens[self.rows.first : -1]
        if self._waiting and len(self.read) + len(states) == len(before):
            self._catch_up()
            self.read = before

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, before = TreeBuilder(), state.tokens[self.rows.first : -1]
        if common_prefix_length(self.read, before) + sum(map(len, self._waiting)) != len(before):
            return builder.tree()  # a text whose states are not known
        self._crop(before)
        for depth in range(budget.gamma):
            chain = DraftTree.chain(builder.tokens)
            logits = self._adapt(self.view.step(chain, max(0, len(chain) - 1))[-1:])
            self.read = before + [state.tokens[-1], *builder.tokens]
            logits = state.process_draft_row(logits, builder.tokens)
            token, probs = sample_token(logits, state)
            builder.add(token, len(builder) - 1, builder.begin(probs, IID))
            if budget.stop is not never_stop and budget.stop(
                Step(token, policy_probs(logits, probs, state), depth)
            ):
                break
        layers = self.target.layers
        state.note(
            "layers",
            count=layers,
            skipped=list(range(2 * self.adapter.exit, 2 * layers)),
            reused=self.adapter.exit,
        )
        return builder.tree()

    def _adapt(self, state: Tensor) -> Tensor:
        """Return logits [vocab] after a state [1, hidden], which is processed after the pending ones."""
        with torch.inference_mode():
            out = self.adapter.last_norm(self._catch_up(state)[-1:])
            return self.target.head(out.to(state.dtype))[0]

    def _catch_up(self, *states: Tensor) -> Tensor:
        """Process the pending states and these [n, hidden]; return the adapter's output for all of them."""
        rows, self._waiting = torch.cat([*self._waiting, *states]), []
        with torch.inference_mode():
            return self.rows.read(rows.to(self.rows.net.dtype))

    def _crop(self, tokens: list[int]) -> None:
        """Keep the rows that belong to these tokens."""
        self.read = self.read[: common_prefix_length(self.read, tokens)]
        self.rows.crop(len(self.read))

    def observe(self, state: State, outcome: Outcome) -> None:
        true = state.tokens[self.rows.first : -1]
        self._crop(true)
        missing = len(true) - len(self.read) - sum(map(len, self._waiting))
        if missing > 0:
            self._waiting.append(
                select_rows(outcome.scores.hidden_states[self.capture], outcome.kept[-missing:])
            )
