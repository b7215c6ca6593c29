"""TETRIS (Wu et al. 2502.15197): the rows of a batch go to the draft tokens that are most likely to be accepted, whosever they are.

Every request drafts a few tokens more than its share; of all of them the ones with the largest product of draft probabilities are
verified. The paper multiplies the probabilities of the drafted tokens themselves, which at temperatures above 0 would favour
drafts by what was drawn and bias the output. Here it is the probability of the draft's best token at each place, which is the same
at temperature 0, and above it is known before the token is drawn: what is kept stays an honest draw.
"""
from __future__ import annotations

from typing import Sequence

from ..core import Budget, DraftTree, JointPolicy, State, Step
from .rows import note_rows

UNKNOWN = 0.5  # chance of a token whose drafter tells none


class RowBudget(JointPolicy):
    """gamma: draft rows a request on average; extra: tokens drafted beyond. For drafters of chains."""

    def __init__(self, gamma: int = 4, extra: int = 2):
        self.gamma, self.extra = gamma, extra
        self.sure: list[list[float]] = []  # of the tokens drafted this round, a list for each request

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        self.sure = [[] for _ in states]
        return [Budget(self.gamma + self.extra, stop=_recorder(line)) for line in self.sure]

    def budget(self, requests: int) -> int:
        """Draft rows for so many requests."""
        return self.gamma * requests

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        budget = self.budget(len(trees))
        lengths = shares([chances(line, len(tree)) for line, tree in zip(self.sure, trees)], budget)
        kept = [tree if n >= len(tree) else tree.keep(range(n), looked=False) for tree, n in zip(trees, lengths)]
        why = [f"{len(few)} of its {len(tree)} drafted tokens are among the batch's {budget} likeliest"
               for tree, few in zip(trees, kept)]
        note_rows(states, trees, kept, why, budget=budget)
        return kept


def _recorder(line: list[float]):
    def stop(step: Step) -> bool:
        line.append(float(step.probs.max()))
        return False
    return stop


def chances(sure: Sequence[float], length: int) -> list[float]:
    """The chance that a chain is accepted up to each of its tokens, as far as its draft model believes."""
    out, chance = [], 1.0
    for i in range(length):
        chance *= sure[i] if i < len(sure) else UNKNOWN
        out.append(chance)
    return out


def shares(chains: Sequence[Sequence[float]], budget: int) -> list[int]:
    """How many tokens of each chain are among the ``budget`` likeliest of all. Chances fall along a chain, so that what is kept is
    its beginning; of equal ones the nearer to the root comes first."""
    order = sorted((-chance, depth, i) for i, chain in enumerate(chains) for depth, chance in enumerate(chain))[:budget]
    return [sum(i == mine for *_, i in order) for mine in range(len(chains))]
