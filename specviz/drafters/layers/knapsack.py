"""Choose the sublayers to skip by solving a knapsack problem (KnapSpec, Cha et al., ICML 2026).

Attention and feed-forward sublayers have different costs, so they are chosen separately. For each amount of
saved cost, a dynamic program keeps the set of skipped sublayers whose hidden states are most similar
(cosine) to those of the full target. Of these sets, the one with the most expected tokens per cost is used,
together with its best draft length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core import (
    Budget,
    CapableTarget,
    Drafter,
    DraftSteps,
    DraftTree,
    Outcome,
    Scores,
    State,
    StopBelowProbability,
    run_alone,
)
from ..model.chain import DraftChain

MOST_WEIGHT = 5  # largest ratio of the two kinds' costs, rounded to whole weights (the authors' value)


class Sublayers(Protocol):
    """Single sublayers of a target, run over its last committed tokens (implemented in
    targets/sublayers.py). costs: multiply-adds per token of an attention and of a feed-forward sublayer."""

    costs: tuple[float, float]

    def enter(self) -> Tensor:
        """Return the hidden states [tokens, hidden] that enter the first layer."""
        ...

    def run(self, index: int, states: Tensor) -> Tensor:
        """Return the hidden states after sublayer ``index`` (2i: attention of layer i, 2i + 1: its MLP),
        given those before it, [sets, tokens, hidden]."""
        ...

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits [..., vocab] of hidden states after the last layer, before the final norm."""
        ...


@dataclass(frozen=True)
class SkipPlan:
    """A set of sublayers to skip while drafting, and the draft length to use with it. agreement: share of
    tokens for which the top-1 token without these sublayers is that of the full target; speed: expected
    tokens per cost relative to plain decoding."""

    skipped: frozenset[int]
    agreement: float
    length: int
    speed: float


@dataclass(frozen=True)
class Cell:
    """A cell of the dynamic program: the best set of skipped sublayers found so far that saves one amount
    of cost. states [tokens, hidden]: the hidden states with this set skipped; similarity: their mean cosine
    similarity with the full target's."""

    states: Tensor
    similarity: float
    skipped: tuple[int, ...]


def integer_costs(costs: tuple[float, float]) -> tuple[int, int]:
    """Return the costs of an attention and a feed-forward sublayer as integers: 1 for the cheaper one, the
    rounded ratio (at most MOST_WEIGHT) for the other."""
    attention, feed = costs
    return (
        (min(round(attention / feed), MOST_WEIGHT), 1)
        if attention > feed
        else (1, min(round(feed / attention), MOST_WEIGHT))
    )


def find_skip_sets(
    sublayers: Sublayers, layers: int, share: float, min_similarity: float
) -> tuple[list[Cell], Tensor]:
    """Run KnapSpec's dynamic program. Return the best skip set of each amount of saved cost, cheapest
    saving first, and the full target's last hidden states [tokens, hidden].

    layers: number of the target's layers; share: largest share of their cost that may be saved;
    min_similarity: mean cosine similarity below which a set is dropped. The first and the last layer are
    never skipped."""
    full = [sublayers.enter()]
    for s in range(2 * layers):
        full.append(sublayers.run(s, full[-1][None])[0])
    weights = integer_costs(sublayers.costs)
    budget = int(sum(weights) * layers * share)
    cells = {0: Cell(full[2], 1.0, ())}
    for s in range(2, 2 * layers):
        cells = _next(
            cells,
            s,
            sublayers.run(s, torch.stack([cell.states for cell in cells.values()])),
            full[s + 1],
            min_similarity,
            weights[s % 2] if s < 2 * layers - 2 else None,
            budget,
        )
        if not cells:
            break
    return [cells[saved] for saved in sorted(cells)], full[-1]


def _next(
    cells: dict[int, Cell],
    s: int,
    run: Tensor,
    full: Tensor,
    min_similarity: float,
    weight: int | None,
    budget: int,
) -> dict[int, Cell]:
    """Return the cells after sublayer s. run [cells, tokens, hidden]: their states after it; weight: None
    where it must not be skipped."""
    direction, found = F.normalize(full, dim=-1), {}

    def similarity(states: Tensor) -> list[float]:
        return (F.normalize(states, dim=-1) * direction).sum(-1).mean(-1).tolist()

    def offer(saved: int, cell: Cell) -> None:
        if cell.similarity >= min_similarity and (
            saved not in found or cell.similarity > found[saved].similarity
        ):
            found[saved] = cell

    kept = similarity(torch.stack([cell.states for cell in cells.values()]))
    for i, ((saved, cell), ran) in enumerate(zip(cells.items(), similarity(run))):
        offer(saved, Cell(run[i], ran, cell.skipped))
        if weight is not None and saved + weight <= budget:
            offer(saved + weight, Cell(cell.states, kept[i], (*cell.skipped, s)))
    return found


def expected_speedup(
    agreement: float, length: int, skipped: Sequence[int], layers: int, costs: tuple[float, float]
) -> float:
    """Return the expected tokens per cost of a round with ``length`` drafted tokens, relative to plain
    decoding, if each is accepted with probability ``agreement``. skipped: sublayers skipped while drafting;
    costs: of an attention and a feed-forward sublayer."""
    tokens = length + 1.0 if agreement == 1 else (1 - agreement ** (length + 1)) / (1 - agreement)
    kept = [layers - sum(s % 2 == kind for s in skipped) for kind in (0, 1)]
    cost = sum(one * (n * length + layers) for one, n in zip(costs, kept))
    return tokens * sum(costs) * layers / cost


def best_plan(
    sublayers: Sublayers, layers: int, share: float, min_similarity: float, longest: int
) -> SkipPlan | None:
    """Return the skip set and draft length (1 to ``longest``) with the most expected tokens per cost; None
    if no set can be skipped. Other arguments as in ``find_skip_sets``."""
    cells, full = find_skip_sets(sublayers, layers, share, min_similarity)
    cells = [cell for cell in cells if cell.skipped]
    if not cells:
        return None
    tops = sublayers.logits(torch.stack([*(cell.states for cell in cells), full])).argmax(-1)
    agreed = (tops[:-1] == tops[-1]).double().mean(-1).tolist()
    plans = [
        SkipPlan(
            frozenset(cell.skipped),
            part,
            length,
            expected_speedup(part, length, cell.skipped, layers, sublayers.costs),
        )
        for cell, part in zip(cells, agreed)
        for length in range(1, longest + 1)
    ]
    return max(plans, key=lambda plan: plan.speed)


class KnapsackLayers(Drafter):
    """Drafter of a chain: the target with some sublayers skipped, chosen by a knapsack program (KnapSpec,
    Cha et al., ICML 2026).

    share, min_similarity: as in ``find_skip_sets``; min_prob: drafting stops after a token with a lower
    probability; context: number of committed tokens on which sets are compared; every: rounds between two
    choices; longest: maximum draft length.
    """

    needs = frozenset({"skip", "sublayers"})
    restartable = False  # the view uses the target's own KV cache

    def __init__(
        self, share: float, min_similarity: float, min_prob: float, context: int, every: int, longest: int
    ):
        self.share = share
        self.min_similarity = min_similarity
        self.min_prob = min_prob
        self.context = context
        self.every = every
        self.longest = longest

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target, self.layers = target, target.layers
        self.plan: SkipPlan | None = None
        self.make_plan(len(state.tokens) - 1)

    def make_plan(self, cached: int) -> None:
        """Choose the sublayers to skip by their effect on the last ``context`` tokens of the ``cached``
        ones."""
        count = min(self.context, cached)
        if count < 1 or self.layers < 3:
            return
        with torch.inference_mode():
            self.plan = best_plan(
                self.target.sublayers(count), self.layers, self.share, self.min_similarity, self.longest
            )
        if self.plan is not None:
            self.chain = DraftChain(self.target.skipping(self.plan.skipped))

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return run_alone(self.steps(state, budget))

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        plan = self.plan
        if plan is None:
            return DraftTree()
        limit = min(budget.gamma, plan.length)
        tree = yield from self.chain.steps(
            state, replace(budget, gamma=limit, stop=StopBelowProbability(self.min_prob))
        )
        state.note(
            "layers", count=self.layers, skipped=sorted(plan.skipped), matched=round(plan.agreement, 4)
        )
        state.note("length", gamma=plan.length, acceptance=round(plan.agreement, 4))
        return tree

    def observe(self, state: State, outcome: Outcome) -> None:
        if state.round % self.every == 0:
            self.make_plan(len(state.tokens) - 1)
