"""Jacobi decoding: a block of guesses is scored in parallel and replaced by the target's own choices until it stands still
(Santilli et al. 2305.10427; the block rule of Kou et al. 2403.00835: advance by all that agrees, not by one)."""
from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target


class Jacobi(Drafter):
    """The block is budget.gamma guesses; new places at its end are filled with tokens of the prompt."""

    def __init__(self):
        self.guesses: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.guesses = []

    def propose(self, state: State, budget: Budget) -> DraftTree:
        block = self.guesses[:budget.gamma]
        # any filler is lawful; the start of the context repeats more often than random tokens do
        block += [state.tokens[i % len(state.tokens)] for i in range(len(block), budget.gamma)]
        state.note("grid", block=block, carried=min(len(self.guesses), budget.gamma), at=len(state.tokens), number=0)
        return DraftTree.chain(block)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.guesses = outcome.scores.tops(range(len(outcome.verdict.path) + 1, len(outcome.scores.logits)))
