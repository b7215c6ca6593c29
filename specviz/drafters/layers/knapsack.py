"""Choose the sublayers to skip by solving a knapsack problem (KnapSpec, Cha et al., ICML 2026).

Attention and feed-forward sublayers have different costs, so they are chosen separately. For each amount of saved cost,
a dynamic program keeps the set of skipped sublayers whose hidden states are most similar (cosine) to those of the full
target. Of these sets, the one with the most expected tokens per cost is used, together with its best draft length.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core import Budget, CapableTarget, Drafter, DraftSteps, DraftTree, Outcome, Scores, State, StopBelowProbability, run_alone
from ..model.chain import DraftChain

MOST_WEIGHT = 5  # largest ratio of the two kinds' costs, rounded to whole weights (the authors' value)


class Sublayers(Protocol):
    """Sublayers of a target over its last tokens (targets/sublayers.py)."""

    costs: tuple[float, float]

    def enter(self) -> Tensor: ...
    def run(self, index: int, states: Tensor) -> Tensor: ...
    def logits(self, states: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class SkipPlan:
    """A set of skipped sublayers. agreement: share of tokens for which the draft's top-1 token is the target's; length:
    of the draft; speed: expected tokens per cost relative to plain decoding."""

    skipped: frozenset[int]
    agreement: float
    length: int
    speed: float


@dataclass(frozen=True)
class Cell:
    """The best set found so far that saves one amount of cost. states [tokens, hidden]: its hidden states; alike: their
    mean cosine similarity with the full target's; skipped: the set."""

    states: Tensor
    alike: float
    skipped: tuple[int, ...]


def weights_of(costs: tuple[float, float]) -> tuple[int, int]:
    """Return the costs of an attention and a feed-forward sublayer as integers; the cheaper one is 1."""
    attention, feed = costs
    return ((min(round(attention / feed), MOST_WEIGHT), 1) if attention > feed else (1, min(round(feed / attention), MOST_WEIGHT)))


def candidates(sublayers: Sublayers, layers: int, share: float, least: float) -> tuple[list[Cell], Tensor]:
    """Return the remaining cells, by saved cost, and the full target's last hidden states [tokens, hidden]. share:
    largest share of the whole cost that may be saved; least: mean cosine below which a cell is dropped. The first and
    the last layer are never skipped."""
    full = [sublayers.enter()]
    for s in range(2 * layers):
        full.append(sublayers.run(s, full[-1][None])[0])
    weights = weights_of(sublayers.costs)
    budget = int(sum(weights) * layers * share)
    cells = {0: Cell(full[2], 1.0, ())}
    for s in range(2, 2 * layers):
        cells = _next(cells, s, sublayers.run(s, torch.stack([cell.states for cell in cells.values()])), full[s + 1], least,
                      weights[s % 2] if s < 2 * layers - 2 else None, budget)
        if not cells:
            break
    return [cells[saved] for saved in sorted(cells)], full[-1]


def _next(cells: dict[int, Cell], s: int, run: Tensor, full: Tensor, least: float, weight: int | None, budget: int) -> dict[int, Cell]:
    """Return the cells after sublayer s. run [cells, tokens, hidden]: their states after it; weight: None where it must not be
    skipped."""
    direction, found = F.normalize(full, dim=-1), {}

    def alike(states: Tensor) -> list[float]:
        return (F.normalize(states, dim=-1) * direction).sum(-1).mean(-1).tolist()

    def offer(saved: int, cell: Cell) -> None:
        if cell.alike >= least and (saved not in found or cell.alike > found[saved].alike):
            found[saved] = cell

    kept = alike(torch.stack([cell.states for cell in cells.values()]))
    for i, ((saved, cell), ran) in enumerate(zip(cells.items(), alike(run))):
        offer(saved, Cell(run[i], ran, cell.skipped))
        if weight is not None and saved + weight <= budget:
            offer(saved + weight, Cell(cell.states, kept[i], (*cell.skipped, s)))
    return found


def speed_of(agreement: float, length: int, skipped: Sequence[int], layers: int, costs: tuple[float, float]) -> float:
    """Return the expected tokens per cost of a round, relative to plain decoding, if each drafted token is accepted with probability
    ``agreement``."""
    tokens = length + 1.0 if agreement == 1 else (1 - agreement ** (length + 1)) / (1 - agreement)
    kept = [layers - sum(s % 2 == kind for s in skipped) for kind in (0, 1)]
    cost = sum(one * (n * length + layers) for one, n in zip(costs, kept))
    return tokens * sum(costs) * layers / cost


def best_plan(sublayers: Sublayers, layers: int, share: float, least: float, longest: int) -> SkipPlan | None:
    """Return the set and draft length (1 to ``longest``) with the most expected tokens per cost; None if there is no set."""
    cells, full = candidates(sublayers, layers, share, least)
    cells = [cell for cell in cells if cell.skipped]
    if not cells:
        return None
    tops = sublayers.logits(torch.stack([*(cell.states for cell in cells), full])).argmax(-1)
    agreed = (tops[:-1] == tops[-1]).double().mean(-1).tolist()
    plans = [SkipPlan(frozenset(cell.skipped), part, length, speed_of(part, length, cell.skipped, layers, sublayers.costs))
             for cell, part in zip(cells, agreed) for length in range(1, longest + 1)]
    return max(plans, key=lambda plan: plan.speed)


class KnapsackLayers(Drafter):
    """Draft a chain with the target, skipping the planned sublayers.

    share, least: as in ``candidates``; sure: drafting stops after a token with a lower probability; context: number of
    committed tokens on which sets are compared; every: rounds between plans.
    """

    needs = frozenset({"skip", "sublayers"})
    restartable = False  # the view uses the target's own KV cache

    def __init__(self, share: float, least: float, sure: float, context: int, every: int, longest: int):
        self.share, self.least, self.sure, self.context, self.every, self.longest = share, least, sure, context, every, longest

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target, self.layers = target, target.layers
        self.plan: SkipPlan | None = None
        self.make_plan(len(state.tokens) - 1)

    def make_plan(self, cached: int) -> None:
        """Choose the sublayers to skip, by their effect on the last few of the ``cached`` committed tokens."""
        count = min(self.context, cached)
        if count < 1 or self.layers < 3:
            return
        with torch.inference_mode():
            self.plan = best_plan(self.target.sublayers(count), self.layers, self.share, self.least, self.longest)
        if self.plan is not None:
            self.chain = DraftChain(self.target.skipping(self.plan.skipped))

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return run_alone(self.steps(state, budget))

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        plan = self.plan
        if plan is None:
            return DraftTree()
        limit = min(budget.gamma, plan.length)
        tree = yield from self.chain.steps(state, replace(budget, gamma=limit, stop=StopBelowProbability(self.sure)))
        state.note("layers", count=self.layers, skipped=sorted(plan.skipped), matched=round(plan.agreement, 4))
        state.note("length", gamma=plan.length, acceptance=round(plan.agreement, 4))
        return tree

    def observe(self, state: State, outcome: Outcome) -> None:
        if state.round % self.every == 0:
            self.make_plan(len(state.tokens) - 1)
