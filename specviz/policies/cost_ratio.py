"""Choose the draft length from measured acceptance and measured costs (Leviathan et al. 2211.17192, section
3)."""

from __future__ import annotations

from ..core import Budget, Outcome, Policy, State
from ..core.chip_model import tokens_per_round

PRIOR = 4.0  # weight of the initial acceptance rate, in tokens
MEMORY = 0.98  # exponential decay of older rounds


class CostRatio(Policy):
    """Choose the draft length gamma with the most expected tokens per second: (1 - a^(gamma+1)) / (1 - a)
    tokens for gamma draft steps and one verification, with a the acceptance rate so far (Leviathan et al.
    2211.17192).

    first: draft length of the first two rounds, before costs are measured; max_gamma: longest draft
    considered.
    """

    def __init__(self, first: int = 4, max_gamma: int = 16):
        self.gamma, self.max_gamma = first, max_gamma
        self.accepted = 0.7 * PRIOR
        self.tested = PRIOR
        self.rounds = 0

    def plan(self, state: State) -> Budget:
        accept = min(self.accepted / self.tested, 0.999)
        if self.rounds >= 2:  # the first round includes one-time work
            step = state.costs.draft(self.gamma) / self.gamma
            self.gamma = max(
                range(1, self.max_gamma + 1),
                key=lambda g: tokens_per_round(accept, g) / (g * step + state.costs.verify(g)),
            )
        state.note("length", gamma=self.gamma, acceptance=accept)
        return Budget(self.gamma)

    def observe(self, outcome: Outcome) -> None:
        self.rounds += 1
        accepted, refused = len(outcome.verdict.path), len(outcome.verdict.path) < len(outcome.tree)
        self.accepted, self.tested = (
            self.accepted * MEMORY + accepted,
            self.tested * MEMORY + accepted + refused,
        )
