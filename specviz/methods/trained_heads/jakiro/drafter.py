"""Draft with Jakiro's two experts (arXiv 2502.06282): the last level of a draft comes from their contrast, without a forward
pass."""
from __future__ import annotations

from ....core import Budget, DraftTree, Scores, State
from ....drafters.heads.features import FeatureModel, Features


class ExpertModel(FeatureModel):
    """Score the nodes of depth ``last`` from their parents' rows instead of a forward pass of the head. 0: run all of them."""

    last = 0

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        if not (self.last and len(tree) and tree.depths[start] == self.last):
            return super().score(tree, start)
        return Scores(self.target.head(self.net.after_next(self.above(tree, start)).to(self._kind)))


class JakiroTree(Features):
    """Draft as Features does, but predict the last of two or more levels from the experts' contrast."""

    looks = ExpertModel
    model: ExpertModel

    def propose(self, state: State, budget: Budget) -> DraftTree:
        self.model.last = budget.gamma - 1
        tree = super().propose(state, budget)
        if len(tree):
            deepest = max(tree.depths) == budget.gamma > 1
            shares = [] if self.model._out is None else self.model._out[:, -1].tolist()
            state.note("experts", shares=[round(x, 4) for x in shares], contrast=budget.gamma * deepest)
        return tree
