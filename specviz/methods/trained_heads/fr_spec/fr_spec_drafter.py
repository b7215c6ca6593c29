"""Draft frequent tokens only: the draft head uses those rows of the target's output matrix (lm_head) whose
tokens are common in a corpus (FR-Spec, Zhao et al. 2502.14856)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....core import Budget, CapableTarget, Drafter, DraftTree, Outcome, Scores, State
from ....drafters.heads.reduced_output import with_reduced_output


def most_frequent(tokens: np.ndarray, vocab: int, count: int) -> Tensor:
    """Return the ids of the ``count`` most frequent tokens of a corpus (token ids ``tokens``), ascending,
    int64 [count]. vocab: vocabulary size. Of equally frequent tokens the lower id counts as more
    frequent."""
    counts = np.bincount(tokens[tokens < vocab], minlength=vocab)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:count]))


class FrequentTokens(Drafter):
    """Drafter that runs the drafter ``inner`` with the target's output matrix (lm_head) restricted to
    ``tokens`` (FR-Spec, Zhao et al. 2502.14856). head: the inner drafter's trained draft head; the
    restricted matrix is computed once for it and shared by all runs."""

    def __init__(self, inner: Drafter, head: Any, tokens: Tensor):
        self.inner = inner
        self.net = head
        self.tokens = tokens
        self.hidden_states = inner.hidden_states
        self.needs = inner.needs
        self.restartable = inner.restartable

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.spoken, self.vocab = frozenset(self.tokens.tolist()), target.vocab
        self.inner.start(state, with_reduced_output(target, self.net, self.tokens), prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.inner.propose(state, budget)

    def observe(self, state: State, outcome: Outcome) -> None:
        beyond = [token for token in outcome.committed if token not in self.spoken]
        state.note("frequent", spoken=len(self.spoken), vocabulary=self.vocab, beyond=beyond)
        self.inner.observe(state, outcome)
