"""Plan the tree shape from measured acceptance and measured costs: Sequoia (Chen et al. 2402.12374)."""

from __future__ import annotations

from ...core import Budget, DraftingModel, DraftTree, Outcome, Scores, State, Target
from ...trees import SequoiaPlan, Shape
from .chain import DraftShape

PRIOR = 8.0  # weight of the initial acceptance rates, in trials
EVERY = 24  # rounds between two plans
TRIAL = 4  # rounds of a small and of the largest tree at the start, to measure the cost per token


class SequoiaTree(DraftShape):
    """Drafter of a tree whose shape is planned anew every few rounds by Sequoia's dynamic program, from the
    measured acceptance rate of each sibling rank and the measured costs (Chen et al. 2402.12374). The first
    two shapes are a small tree and the largest one, because the cost per token cannot be measured with one
    size.

    width, depth, nodes: maximum children per node, levels and nodes of a shape; drawn: as in DraftShape. A
    shape depends on earlier rounds only, so the tokens of a round follow the distributions that they are
    sampled from.
    """

    def __init__(self, model: DraftingModel, width: int, depth: int, nodes: int, drawn: bool = True):
        super().__init__(model, Shape(), drawn)
        self.width = width
        self.depth = depth
        self.nodes = nodes

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        super().start(state, target, prefill)
        guess = [0.6 * 0.4**rank for rank in range(self.width)]
        self.hits, self.looks = [PRIOR * a for a in guess], [PRIOR] * self.width
        self.rounds = self.plans = 0

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if not self.plans or self.rounds >= (TRIAL if self.plans <= 2 else EVERY):
            self._plan(state)
        return super().propose(state, budget)

    def _plan(self, state: State) -> None:
        accept = [hit / look for hit, look in zip(self.hits, self.looks)]
        plan = SequoiaPlan(accept, self.nodes, self.depth)
        if self.plans < 2:
            size = (max(1, self.nodes // 4), self.nodes)[self.plans]
            nodes, depth = plan.best(lambda nodes, depth: 1.0 if nodes == size else 1e9)
        else:
            nodes, depth = plan.best(
                lambda nodes, depth: state.costs.verify(nodes) + state.costs.draft(depth)
            )
        self.shape = plan.shape(nodes, depth)
        self.rounds = 0
        self.plans = self.plans + 1
        sizes = range(1, self.nodes + 1)
        state.note(
            "sequoia",
            accept=accept,
            nodes=nodes,
            depth=depth,
            table=[[_finite(plan.value[m + 1, d + 1]) for m in sizes] for d in range(1, self.depth + 1)],
        )

    def observe(self, state: State, outcome: Outcome) -> None:
        self.rounds += 1
        path = set(outcome.verdict.path)
        for node in (-1, *outcome.verdict.path):
            for rank, child in enumerate(outcome.tree.children(node)):
                self.looks[rank] += 1
                self.hits[rank] += child in path


def _finite(value) -> float | None:
    return float(value) if float(value) > 0 else None
