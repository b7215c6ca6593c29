"""Share the verification budget of a batch: TETRIS (Wu et al. 2502.15197).

Every request drafts a few tokens more than its share; the draft tokens with the largest product of draft probabilities over the whole
batch are verified. The paper multiplies the probabilities of the drafted tokens themselves, which at temperatures above 0 selects
drafts by the token drawn and biases the output. Here it is the probability of the draft's top-1 token at each position: identical at
temperature 0, and above it known before the token is drawn.

Path probabilities only fall. So a request stops drafting as soon as the budget is used up by more probable tokens of the batch, which
drops nothing that would have been verified. With more than one request it also stops below the smallest path probability that was
verified in the previous round. Both stopping rules are additions to the paper.
"""
from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from ..core import Budget, DraftTree, JointPolicy, State, Step
from .batch_lengths import note_rows

UNKNOWN = 0.5  # probability of a token whose drafter reports none

WHY = "{count} of its {drafted} drafted tokens are among the batch's {budget} most probable"  # of a note's rows


class BatchTokenBudget(JointPolicy):
    """Allocate draft tokens over the requests of a batch. For drafters of chains. gamma: verified draft tokens per
    request on average; extra: tokens that each request drafts beyond that."""

    def __init__(self, gamma: int = 4, extra: int = 2):
        self.gamma, self.extra = gamma, extra
        self.sure: list[list[float]] = []  # top-1 probability at each position drafted in this round, one list per request
        self.least = 0.0  # smallest path probability verified in the previous round

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        self.sure = [[] for _ in states]
        ranked: list[tuple[float, int, int]] = []
        budget, least = self.budget(states), self.least if len(states) > 1 else 0.0
        return [Budget(self.gamma + self.extra, stop=_recorder(line, i, ranked, budget, least)) for i, line in enumerate(self.sure)]

    def budget(self, states: Sequence[State]) -> int:
        """Return the number of draft tokens to verify: gamma per request, fewer near the end of an answer."""
        return sum(max(0, min(self.gamma, state.left - 1)) for state in states)

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        budget = self.budget(states)
        believed = [token_probs(line, len(tree)) for line, tree in zip(self.sure, trees)]
        lengths = shares(believed, budget)
        self.least = min((line[n - 1] for line, n in zip(believed, lengths) if n), default=0.0)
        kept = [tree if n >= len(tree) else tree.keep(range(n), looked=False) for tree, n in zip(trees, lengths)]
        why = [WHY.format(count=len(few), drafted=len(tree), budget=budget)
               for tree, few in zip(trees, kept)]
        note_rows(states, trees, kept, why, budget=budget)
        return kept


def _recorder(line: list[float], mine: int, ranked: list[tuple[float, int, int]], budget: int, least: float) -> Callable[[Step], bool]:
    """Return a stop function that records top-1 probabilities and ends a draft once its next token cannot be among the ``budget`` most
    probable of the batch, or falls below ``least``. ``ranked``: all tokens drafted in this round, sorted as in ``shares``."""
    prob = 1.0

    def stop(step: Step) -> bool:
        nonlocal prob
        sure = float(step.probs.max())  # one synchronisation per draft step
        prob *= sure
        insort(ranked, (-prob, len(line), mine))
        line.append(sure)
        return prob < least or bisect_left(ranked, (-prob, len(line), mine)) >= budget
    return stop


def token_probs(sure: Sequence[float], length: int) -> list[float]:
    """Return, for each token of a chain, the draft model's probability that the chain is accepted up to and including it."""
    out, prob = [], 1.0
    for i in range(length):
        prob *= sure[i] if i < len(sure) else UNKNOWN
        out.append(prob)
    return out


def shares(chains: Sequence[Sequence[float]], budget: int) -> list[int]:
    """Return, for each chain, how many of its tokens are among the ``budget`` most probable tokens of all chains.
    Probabilities fall along a chain, so a prefix is kept; of equal probabilities the token nearer to the root comes
    first."""
    order = sorted((-prob, depth, i) for i, chain in enumerate(chains) for depth, prob in enumerate(chain))[:budget]
    return [sum(i == mine for *_, i in order) for mine in range(len(chains))]
