"""A head over frequent tokens only (FR-Spec, Zhao et al. 2502.14856).

A head that uses the target's output matrix multiplies by the whole vocabulary in each pass, which is most of the cost of a
one-layer head. Only the rows of tokens common in a corpus are used here; the others have draft probability 0 and can only come
from the target.
"""
from __future__ import annotations

from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ....core import Budget, CapableTarget, Drafter, DraftTree, Outcome, Scores, State
from ....models.linear import fastest_layout, without_timing

_reduced_heads: WeakKeyDictionary[Any, dict[int, ReducedHead]] = WeakKeyDictionary()


def most_frequent(tokens: np.ndarray, vocab: int, count: int) -> Tensor:
    """Return the ``count`` most frequent tokens of a corpus, ties to the lower id, in ascending order; int64 [count]."""
    counts = np.bincount(tokens[tokens < vocab], minlength=vocab)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:count]))


class ReducedHead:
    """The target's output matrix for some tokens: states [n, hidden] -> logits [n, vocab], minus infinity for all others.

    A target exposes its output matrix as a function, so the rows are computed from the unit vectors.
    """

    def __init__(self, target: CapableTarget, tokens: Tensor):
        probe = torch.eye(target.embed([0]).shape[-1], dtype=(states := target.embed([0])).dtype, device=states.device)
        with torch.inference_mode():
            rows = torch.cat([target.head(part)[:, tokens.to(states.device)] for part in probe.split(64)]).T.contiguous()
        self.vocab, self.tokens = target.vocab, tokens.to(states.device)
        with without_timing():  # cut within a run, which must write the same in the next process
            self.linear = fastest_layout([rows], rows.numel() * rows.element_size())(rows)

    def __call__(self, states: Tensor) -> Tensor:
        logits = self.linear(states)
        return logits.new_full((*logits.shape[:-1], self.vocab), -torch.inf).index_copy_(-1, self.tokens, logits)

    def fits(self, target: CapableTarget, tokens: Tensor) -> bool:
        """Return whether it was made from this target's matrix for these tokens."""
        if len(tokens) != len(self.tokens) or target.vocab != self.vocab or not torch.equal(tokens.to(self.tokens.device), self.tokens):
            return False
        with torch.inference_mode():
            state = target.embed(self.tokens[:1].tolist())
            logits = target.head(state)[0, self.tokens]
            return bool(torch.allclose(self(state)[0, self.tokens], logits, atol=1e-3 * (1 + float(logits.abs().max()))))


class ReducedTarget:
    """A target whose ``head`` is replaced; everything else is unchanged."""

    def __init__(self, target: CapableTarget, head: ReducedHead):
        self._target, self.head = target, head

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for these before it has a target
            raise AttributeError(name)
        return getattr(self._target, name)


class FrequentTokens(Drafter):
    """A drafter whose head gets only the rows of ``tokens`` from the target. head: the weights, shared by all runs."""

    def __init__(self, inner: Drafter, head: Any, tokens: Tensor):
        self.inner, self.net, self.tokens = inner, head, tokens
        self.hidden_states, self.needs, self.restartable = inner.hidden_states, inner.needs, inner.restartable

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        made = _reduced_heads.setdefault(self.net, {})
        cut = made.get(len(self.tokens))
        if cut is None or not cut.fits(target, self.tokens):
            cut = made[len(self.tokens)] = ReducedHead(target, self.tokens)
        self.spoken, self.vocab = frozenset(self.tokens.tolist()), target.vocab
        self.inner.start(state, cast(CapableTarget, ReducedTarget(target, cut)), prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.inner.propose(state, budget)

    def observe(self, state: State, outcome: Outcome) -> None:
        beyond = [token for token in outcome.committed if token not in self.spoken]
        state.note("frequent", spoken=len(self.spoken), vocabulary=self.vocab, beyond=beyond)
        self.inner.observe(state, outcome)
