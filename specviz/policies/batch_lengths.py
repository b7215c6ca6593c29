"""Draft lengths in a batch: BASS (Qian et al. 2404.15778), one length for the batch, longer after a fully
accepted draft; EMS-SD (Ni et al. 2405.07542), a length per request without padding. ``note_rows`` is shared
by all policies of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core import Budget, DraftTree, JointPolicy, Outcome, State, StopBelowProbability

# Why a request got its draft length, in a note's rows.
FULL = "its draft stayed above the threshold"
STOPPED = "its draft fell below the threshold after {tokens}"


def note_rows(
    states: Sequence[State],
    asked: Sequence[DraftTree],
    given: Sequence[DraftTree],
    why: Sequence[str],
    **more: Any,
) -> None:
    """Attach to each request's state the note "rows": the number of tokens that each request of the batch
    has in the target's forward pass, including its root.

    asked: the drafted trees; given: the trees that are scored; why: the reason for each request's draft
    length; more: further fields of the note."""
    rows, wanted = [1 + len(tree) for tree in given], [1 + len(tree) for tree in asked]
    if len(rows) > 1:
        more["reasons"] = list(why)
    for i, (state, reason) in enumerate(zip(states, why)):
        state.note(
            "rows", request=i, asked=wanted, given=rows, padded=len(rows) * max(rows), why=reason, **more
        )


class BatchDraftLength(JointPolicy):
    """One draft length l for all requests of a batch (BASS, Qian et al. 2404.15778). After a round in which
    a request's draft was fully accepted, l grows by ``up``. Otherwise it falls by ceil(l / 10), by one more
    if it fell in the previous round, too, but not below the longest accepted draft. first: initial length;
    max_gamma: maximum length."""

    def __init__(self, first: int = 7, up: int = 2, max_gamma: int = 32):
        self.gamma = first
        self.up = up
        self.max_gamma = max_gamma
        self.fell = 0

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        return [Budget(self.gamma)] * len(states)

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        note_rows(
            states,
            trees,
            trees,
            [f"the batch drafts {self.gamma} tokens a request"] * len(states),
            gamma=self.gamma,
        )
        return trees

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        longest = max(len(outcome.verdict.path) for outcome in outcomes)
        if longest >= self.gamma:
            self.gamma, self.fell = min(self.max_gamma, self.gamma + self.up), 0
        else:
            self.gamma, self.fell = max(1, longest, self.gamma - math.ceil(self.gamma / 10) - self.fell), 1


class RaggedDraftLengths(JointPolicy):
    """A draft length for each request of a batch, without padding (EMS-SD, Ni et al. 2405.07542). Each
    request drafts at most ``max_gamma`` tokens and stops after a token with a draft probability below
    ``min_prob``."""

    def __init__(self, max_gamma: int = 8, min_prob: float = 0.4):
        self.budget, self.min_prob = Budget(max_gamma, stop=StopBelowProbability(min_prob)), min_prob

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        return [self.budget] * len(states)

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        note_rows(
            states,
            trees,
            trees,
            [STOPPED.format(tokens=len(tree)) if len(tree) < self.budget.gamma else FULL for tree in trees],
        )
        return trees
