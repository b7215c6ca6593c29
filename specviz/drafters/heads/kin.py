"""Drafting with heads of EAGLE's kin: Jakiro's experts, whose contrast saves the last pass, and FSPAD's two states."""
from __future__ import annotations

from torch.nn import functional as F

from ...core import Budget, DraftTree, Scores, State
from .features import FeatureModel, Features


class ExpertModel(FeatureModel):
    """last: nodes of this depth are not run through the head; what follows them was guessed in their parents' rows. 0: all are
    run."""

    last = 0

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        if not (self.last and len(tree) and tree.depths[start] == self.last):
            return super().score(tree, start)
        return Scores(self.target.head(self.net.further(self.above(tree, start)).to(self._kind)))


class Experts(Features):
    """As Features; the last level of a draft of two or more comes without a pass (Jakiro)."""

    looks = ExpertModel

    def propose(self, state: State, budget: Budget) -> DraftTree:
        self.model.last = budget.gamma - 1
        tree = super().propose(state, budget)
        if len(tree):
            deepest = max(tree.depths) == budget.gamma > 1
            state.note("experts", shares=[round(x, 4) for x in self.model._out[:, -1].tolist()], contrast=budget.gamma * deepest)
        return tree


class Halves(Features):
    """As Features; tells how far a row's two states are from each other (FSPAD)."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = super().propose(state, budget)
        if len(tree):
            out, net = self.model._out, self.model.net
            state.note("halves", likeness=[round(x, 4) for x in F.cosine_similarity(net.said(out), net.feedback(out), -1).tolist()])
        return tree
