"""Jacobi decoding: score a block of guesses in parallel and replace it by the target's top-1 tokens until
it converges (Santilli et al. 2305.10427; as in Kou et al. 2403.00835 the whole converged prefix is accepted
per pass)."""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target


class Jacobi(Drafter):
    """Drafter by Jacobi iteration (Santilli et al. 2305.10427): a chain of budget.gamma guesses, the
    target's top-1 tokens of its previous pass. Positions that no pass has scored yet are filled with tokens
    of the context."""

    def __init__(self):
        self.guesses: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.guesses = []

    def propose(self, state: State, budget: Budget) -> DraftTree:
        block = self.guesses[: budget.gamma]
        # any filler is valid; tokens of the prompt are repeated more often than random ones
        block += [state.tokens[i % len(state.tokens)] for i in range(len(block), budget.gamma)]
        state.note(
            "grid", block=block, carried=min(len(self.guesses), budget.gamma), at=len(state.tokens), number=0
        )
        return DraftTree.chain(block)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.guesses = outcome.scores.tops(range(len(outcome.verdict.path) + 1, len(outcome.scores.logits)))
