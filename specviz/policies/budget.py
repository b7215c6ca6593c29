"""TETRIS (Wu et al. 2502.15197): the rows of a batch go to the draft tokens that are most likely to be accepted, whosever they are.

Every request drafts a few tokens more than its share; of all of them the ones with the largest product of draft probabilities are
verified. The paper multiplies the probabilities of the drafted tokens themselves, which at temperatures above 0 would favour
drafts by what was drawn and bias the output. Here it is the probability of the draft's best token at each place, which is the same
at temperature 0, and above it is known before the token is drawn: what is kept stays an honest draw.

Who drafts on only ever becomes less likely. So a request stops as soon as the rows are spoken for by likelier tokens: nothing is left
out by that which would have been verified. Beside others it also stops where it is less likely than the least that got a row in the
round before: what would hardly be verified is not drafted. Both are ours.
"""
from __future__ import annotations

from bisect import bisect_left, insort
from typing import Callable, Sequence

from ..core import Budget, DraftTree, JointPolicy, State, Step
from .rows import note_rows

UNKNOWN = 0.5  # chance of a token whose drafter tells none


class RowBudget(JointPolicy):
    """gamma: draft rows a request on average; extra: tokens drafted beyond. For drafters of chains."""

    def __init__(self, gamma: int = 4, extra: int = 2):
        self.gamma, self.extra = gamma, extra
        self.sure: list[list[float]] = []  # of the tokens drafted this round, a list for each request
        self.least = 0.0  # chance of the least likely token that got a row in the round before

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        self.sure = [[] for _ in states]
        ranked: list[tuple[float, int, int]] = []
        budget, least = self.budget(states), self.least if len(states) > 1 else 0.0
        return [Budget(self.gamma + self.extra, stop=_recorder(line, i, ranked, budget, least)) for i, line in enumerate(self.sure)]

    def budget(self, states: Sequence[State]) -> int:
        """Draft rows for these requests: as many as drafts of length gamma would take, which near an end are shorter."""
        return sum(max(0, min(self.gamma, state.left - 1)) for state in states)

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        budget = self.budget(states)
        believed = [token_probs(line, len(tree)) for line, tree in zip(self.sure, trees)]
        lengths = shares(believed, budget)
        self.least = min((line[n - 1] for line, n in zip(believed, lengths) if n), default=0.0)
        kept = [tree if n >= len(tree) else tree.keep(range(n), looked=False) for tree, n in zip(trees, lengths)]
        why = [f"{len(few)} of its {len(tree)} drafted tokens are among the batch's {budget} likeliest"
               for tree, few in zip(trees, kept)]
        note_rows(states, trees, kept, why, budget=budget)
        return kept


def _recorder(line: list[float], mine: int, ranked: list[tuple[float, int, int]], budget: int, least: float) -> Callable[[Step], bool]:
    """Notes what a request's draft believes; True where a further token of it could not be among the ``budget`` likeliest, or would be
    less likely than ``least``. ``ranked``: all tokens that were drafted in this round, the likeliest first, as in ``shares``."""
    prob = 1.0

    def stop(step: Step) -> bool:
        nonlocal prob
        sure = float(step.probs.max())  # once: on a device it is waited for
        prob *= sure
        insort(ranked, (-prob, len(line), mine))
        line.append(sure)
        return prob < least or bisect_left(ranked, (-prob, len(line), mine)) >= budget
    return stop


def token_probs(sure: Sequence[float], length: int) -> list[float]:
    """The chance that a chain is accepted up to each of its tokens, as far as its draft model believes."""
    out, prob = [], 1.0
    for i in range(length):
        prob *= sure[i] if i < len(sure) else UNKNOWN
        out.append(prob)
    return out


def shares(chains: Sequence[Sequence[float]], budget: int) -> list[int]:
    """How many tokens of each chain are among the ``budget`` likeliest of all. Chances fall along a chain, so that what is kept is
    its beginning; of equal ones the nearer to the root comes first."""
    order = sorted((-prob, depth, i) for i, chain in enumerate(chains) for depth, prob in enumerate(chain))[:budget]
    return [sum(i == mine for *_, i in order) for mine in range(len(chains))]
