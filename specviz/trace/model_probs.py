"""Probabilities for the trace: top tokens of a distribution, and the model's own probabilities of a round's
tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.parts import Outcome
from ..core.state import State

Top = list[list[float]]  # [[token, probability], ...]


def top_tokens(probs: Tensor | None, count: int) -> Top | None:
    """Return the ``count`` most probable tokens of a distribution [vocab] as [token, probability] pairs,
    best first; None without a distribution, or for count 0."""
    if probs is None or not count:
        return None
    values, tokens = probs.topk(min(count, probs.shape[-1]))
    return [[int(x), float(p)] for x, p in zip(tokens.tolist(), values.tolist()) if p > 0]


class ModelProbs:
    """Probabilities of a round's tokens under the model's own distribution: softmax at temperature 1,
    before logits processors.

    They are computed only if log-probabilities are requested, or at temperature 0 if distributions are
    saved, because there the distribution that tokens are drawn from is one-hot."""

    def __init__(self, outcome: Outcome, state: State):
        self.outcome = outcome
        self.logprobs = state.logprobs
        self.count = state.top_k_saved
        self.greedy = state.sampling.greedy and bool(state.top_k_saved)
        self._rows: dict[int, Tensor] = {}

    def _row(self, row: int) -> Tensor:
        """Return log-probabilities [vocab] at a row of the scores."""
        if row not in self._rows:
            logits = self.outcome.scores.model_logits[row]
            self._rows[row] = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
        return self._rows[row]

    def of_node(self, node: int) -> dict[str, Any]:
        """Return the fields that are added to a draft node's decision in the trace."""
        row = self.outcome.tree.parents[node] + 1
        if not self.greedy or row >= len(self.outcome.scores.logits):
            return {}
        probs = self._row(row).exp()
        return {
            "softmax_p": float(probs[self.outcome.tree.tokens[node]]),
            "top_softmax": top_tokens(probs, self.count),
        }

    def of_committed(self) -> tuple[Any, ...]:
        """Return the values of the last four fields of ``Committed``: softmax_p, softmax_top, logprobs,
        top_logprobs."""
        kept, tokens = self.outcome.kept, self.outcome.committed
        probs = self._row(kept[-1]).exp() if self.greedy else None
        last = (None, None) if probs is None else (float(probs[tokens[-1]]), top_tokens(probs, self.count))
        if self.logprobs is None:
            return *last, None, None
        pairs = [(self._row(row), token) for row, token in zip(kept, tokens)]
        return (
            *last,
            tuple(float(row[token]) for row, token in pairs),
            tuple(_top(row, self.logprobs) for row, _ in pairs),
        )


class DraftProbs:
    """Probabilities of a round's draft tokens under the draft's own distribution: softmax at temperature 1,
    before logits processors. They are known at temperature 0 only, where the drafter has logits and saved
    them (``State.save_draft_logits``)."""

    def __init__(self, outcome: Outcome, state: State):
        root = len(state.tokens) - len(outcome.committed)
        self.tree, self.count = outcome.tree, state.top_k_saved
        self._logits = {tuple(map(int, path)): row for at, path, row in state.draft_logits if at == root}
        self._probs: dict[tuple[int, ...], Tensor] = {}
        state.draft_logits.clear()

    def of_node(self, node: int) -> dict[str, Any]:
        """Return the fields that are added to a draft node in the trace. A copied token has none: no logits
        chose it."""
        tree = self.tree
        if (
            not self._logits
            or node in tree.probes
            or node < len(tree.origin)
            and tree.origin[node] is not None
        ):
            return {}
        path, token = (
            tuple(int(tree.tokens[above]) for above in tree.path(tree.parents[node])),
            int(tree.tokens[node]),
        )
        logits = self._logits.get(path)
        if logits is None or not 0 <= token < len(logits):
            return {}
        if path not in self._probs:
            self._probs[path] = (logits if logits.dtype == torch.float64 else logits.float()).softmax(-1)
        probs = self._probs[path]
        return {"softmax_q": float(probs[token]), "top_softmax": top_tokens(probs, self.count)}


def grammar_note(outcome: Outcome) -> dict[str, Any]:
    """Return the note on what a grammar allowed and forbade at each committed token."""
    rows = list(outcome.kept)
    raw = outcome.scores.model_logits[rows].float().softmax(-1)
    allowed = outcome.scores.logits[rows] > -torch.inf
    values, tokens = raw.max(-1)
    return {
        "tokens": list(outcome.committed),
        "allowed": allowed.sum(-1).tolist(),
        "removed": [round(x, 6) for x in raw.masked_fill(allowed, 0.0).sum(-1).tolist()],
        "top": [[token, round(value, 6)] for token, value in zip(tokens.tolist(), values.tolist())],
    }


def _top(logprobs: Tensor, count: int) -> Top:
    values, tokens = logprobs.topk(min(count, len(logprobs)))
    return [[int(token), float(value)] for token, value in zip(tokens.tolist(), values.tolist())]
