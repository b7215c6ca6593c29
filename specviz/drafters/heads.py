"""Drafting with heads on the target's last state: no model of its own, no cache of its own.

A round begins with the root, a token that the target has just written, and with the state that predicted it. That state is all
that Medusa's heads read (Cai et al. 2401.10774); the tree is fixed beforehand and filled with each head's likeliest tokens. All
nodes are chosen and none is drawn, so the rule for chosen nodes keeps the target's law exactly, at any temperature.
"""
from __future__ import annotations

from typing import Any

from torch import Tensor

from ..core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from ..trees import Shape, best


class LastState(Drafter):
    """Keeps the state that predicted the root: ``last`` [hidden], None before the target has shown any."""

    taps = frozenset({"final"})
    restartable = False  # it knows the states of the run it saw, not those of a hypothetical one

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.target = target
        rows = prefill.taps.get("final")
        self.last: Tensor | None = rows[-1] if rows is not None and len(rows) else None

    def observe(self, state: State, outcome: Outcome) -> None:
        self.last = outcome.scores.taps["final"][outcome.kept[-1]]


class MedusaTree(LastState):
    """A tree of a fixed shape; the node of depth i and rank r is the r-th likeliest token of head i."""

    needs = frozenset({"tap:final", "head"})

    def __init__(self, heads: Any, shape: Shape):
        self.heads, self.shape = heads, shape.within(len(heads), 10**6)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = self.shape.within(min(budget.gamma, len(self.heads)), budget.width)
        if self.last is None or not len(shape):
            return DraftTree()
        depth = max(shape.depths)
        logits = self.heads(self.last, depth, self.target.head)  # [depth, vocab]
        tokens = best(logits, max(shape.ranks) + 1)[1].tolist()
        build, at = TreeBuilder(), {-1: -1}
        for place, (parent, rank, level) in enumerate(zip(shape.parents, shape.ranks, shape.depths)):
            if parent in at and rank < len(tokens[level - 1]):
                at[place] = build.add(tokens[level - 1][rank], at[parent])
        return build.tree()
