"""Share the verification budget of a batch: TETRIS (Wu et al. 2502.15197).

Every request drafts a few tokens more than its share; the draft tokens with the largest product of draft
probabilities over the whole batch are verified. The paper multiplies the probabilities of the drafted
tokens themselves, which at temperatures above 0 selects drafts by the token drawn and biases the output.
Here it is the probability of the draft's top-1 token at each position: identical at temperature 0, and
above it known before the token is drawn.

Path probabilities only fall. So a request stops drafting as soon as the budget is used up by more probable
tokens of the batch, which drops nothing that would have been verified. With more than one request it also
stops below the smallest path probability that was verified in the previous round. Both stopping rules are
additions to the paper.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from ..core import Budget, DraftTree, JointPolicy, State, Step
from .batch_lengths import note_rows

UNKNOWN = 0.5  # probability of a token whose drafter reports none

WHY = (
    "{count} of its {drafted} drafted tokens are among the batch's {budget} most probable"  # of a note's rows
)


class BatchTokenBudget(JointPolicy):
    """Verify only the most probable draft tokens of a batch (TETRIS, Wu et al. 2502.15197), for drafters of
    chains.

    gamma: draft tokens verified per request, on average; extra: tokens that each request drafts beyond
    gamma."""

    def __init__(self, gamma: int = 4, extra: int = 2):
        self.gamma, self.extra = gamma, extra
        self.top1_probs: list[
            list[float]
        ] = []  # top-1 probability at each position drafted in this round, one list per request
        self.min_prob = 0.0  # smallest path probability verified in the previous round

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        self.top1_probs = [[] for _ in states]
        ranked: list[tuple[float, int, int]] = []
        budget, min_prob = self.budget(states), self.min_prob if len(states) > 1 else 0.0
        return [
            Budget(self.gamma + self.extra, stop=_recorder(line, i, ranked, budget, min_prob))
            for i, line in enumerate(self.top1_probs)
        ]

    def budget(self, states: Sequence[State]) -> int:
        """Return the number of draft tokens to verify in this round: gamma per request, fewer near the end
        of an answer."""
        return sum(max(0, min(self.gamma, state.left - 1)) for state in states)

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        budget = self.budget(states)
        believed = [path_probs(line, len(tree)) for line, tree in zip(self.top1_probs, trees)]
        lengths = tokens_per_chain(believed, budget)
        self.min_prob = min((line[n - 1] for line, n in zip(believed, lengths) if n), default=0.0)
        kept = [
            tree if n >= len(tree) else tree.keep(range(n), by_token=False) for tree, n in zip(trees, lengths)
        ]
        why = [WHY.format(count=len(few), drafted=len(tree), budget=budget) for tree, few in zip(trees, kept)]
        note_rows(states, trees, kept, why, budget=budget)
        return kept


def _recorder(
    line: list[float], mine: int, ranked: list[tuple[float, int, int]], budget: int, min_prob: float
) -> Callable[[Step], bool]:
    """Return a stop function that records top-1 probabilities and ends a draft once its next token cannot
    be among the ``budget`` most probable of the batch, or falls below ``min_prob``. ``ranked``: all tokens
    drafted in this round, most probable first."""
    prob = 1.0

    def stop(step: Step) -> bool:
        nonlocal prob
        top1_probs = float(step.probs.max())  # one synchronisation per draft step
        prob *= top1_probs
        insort(ranked, (-prob, len(line), mine))
        line.append(top1_probs)
        return prob < min_prob or bisect_left(ranked, (-prob, len(line), mine)) >= budget

    return stop


def path_probs(top1_probs: Sequence[float], length: int) -> list[float]:
    """Return, for each of the ``length`` tokens of a chain, the product of the top-1 probabilities up to
    and including its position.

    top1_probs: the draft model's top-1 probability at each position; UNKNOWN where there is none."""
    out, prob = [], 1.0
    for i in range(length):
        prob *= top1_probs[i] if i < len(top1_probs) else UNKNOWN
        out.append(prob)
    return out


def tokens_per_chain(chains: Sequence[Sequence[float]], budget: int) -> list[int]:
    """Return, for each chain, the number of its tokens among the ``budget`` most probable tokens of all
    chains.

    chains: path probabilities of each chain's tokens. They fall along a chain, so the tokens counted are a
    prefix. Of equal probabilities the token nearer to the root comes first."""
    order = sorted((-prob, depth, i) for i, chain in enumerate(chains) for depth, prob in enumerate(chain))[
        :budget
    ]
    return [sum(i == mine for *_, i in order) for mine in range(len(chains))]
