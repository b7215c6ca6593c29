"""A low-rank factorisation of the target's output matrix, for drafting (SlimSpec, Plaksin et al. 2605.10453).

A one-layer head that uses the target's full output matrix spends most of its time on it. Factors [vocab, rank] and [rank, hidden] keep
the whole vocabulary, where FR-Spec keeps some tokens (reduced_output.py). They are the best ones in the squared norm (Eckart-Young),
without training.
"""
from __future__ import annotations

from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core import Budget, CapableTarget, Drafter, DraftTree, Outcome, Scores, State
from ...models.int8 import Int8Linear
from ...models.linear import fastest_layout, without_timing
from .reduced_output import ReducedTarget, output_rows

PROBES = 32  # tokens whose embeddings check a cached factorisation

_low_rank_heads: WeakKeyDictionary[Any, dict[int, LowRankHead]] = WeakKeyDictionary()


class LowRankHead:
    """The best approximation of the target's output matrix of a rank: states [n, hidden] -> logits [n, vocab]. kept: its share of the
    squared norm; eight: the large factor is computed in int8."""

    def __init__(self, target: CapableTarget, rank: int, eight: bool = False):
        rows = output_rows(target)
        values, vectors = torch.linalg.eigh(rows.double().T @ rows.double())  # ascending; the right singular vectors of the matrix
        self.rank = min(rank, rows.shape[1])
        self.kept = float(values[-self.rank:].sum() / values.sum())
        self.down = vectors[:, -self.rank:].T.to(rows.dtype).contiguous()
        up = (rows @ self.down.T).contiguous()
        with without_timing():  # made within a run, which must write the same in the next process
            self.up = Int8Linear(up) if eight else fastest_layout([up], up.numel() * up.element_size())(up)
        self.sample = list(range(0, target.vocab, max(1, target.vocab // PROBES)))
        self.expected = target.head(target.embed(self.sample))

    def __call__(self, states: Tensor) -> Tensor:
        return self.up(F.linear(states, self.down.to(states.dtype)))

    def fits(self, target: CapableTarget) -> bool:
        """Return whether this object was made from this target's matrix."""
        logits = target.head(target.embed(self.sample[:1]))
        return logits.shape[1:] == self.expected.shape[1:] and torch.allclose(logits, self.expected[:1], rtol=1e-2, atol=1e-2)


class LowRankOutput(Drafter):
    """A drafter whose head gets a low-rank output matrix of the target. head: the weights, shared by all runs."""

    def __init__(self, inner: Drafter, head: Any, rank: int):
        self.inner, self.net, self.rank = inner, head, rank
        self.hidden_states, self.needs, self.restartable = inner.hidden_states, inner.needs, inner.restartable

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        made = _low_rank_heads.setdefault(self.net, {})
        with torch.inference_mode():
            if self.rank not in made or not made[self.rank].fits(target):
                made[self.rank] = LowRankHead(target, self.rank, bool(getattr(self.net, "eight", False)))
        self.low, self.width = made[self.rank], target.embed([0]).shape[-1]
        self.inner.start(state, cast(CapableTarget, ReducedTarget(target, self.low)), prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.inner.propose(state, budget)

    def observe(self, state: State, outcome: Outcome) -> None:
        state.note("low_rank", rank=self.low.rank, hidden=self.width, kept=round(self.low.kept, 4))
        self.inner.observe(state, outcome)
