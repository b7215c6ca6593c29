"""Draft with Jakiro's two experts (arXiv 2502.06282). The last level of a draft is predicted from the
difference of the experts' outputs, without a forward pass."""

from __future__ import annotations

from ....core import Budget, DraftTree, Scores, State
from ....drafters.heads.features import FeatureDrafter, FeatureModel


class ExpertModel(FeatureModel):
    """Jakiro's head on the target's hidden states during one run, with the interface of FeatureModel. last:
    nodes of this depth are scored from their parents' outputs, without a forward pass of the head; 0: all
    nodes are run."""

    last = 0

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        if not (self.last and len(tree) and tree.depths[start] == self.last):
            return super().score(tree, start)
        return Scores(self.target.head(self.net.after_next(self.parent_outputs(tree, start)).to(self._kind)))


class JakiroTree(FeatureDrafter):
    """Drafter with Jakiro's head (Huang et al. 2502.06282). If the draft has two or more levels, the last
    one is predicted from the difference of the experts' outputs, without a forward pass."""

    model_class = ExpertModel
    model: ExpertModel

    def propose(self, state: State, budget: Budget) -> DraftTree:
        self.model.last = budget.gamma - 1
        tree = super().propose(state, budget)
        if len(tree):
            deepest = max(tree.depths) == budget.gamma > 1
            shares = [] if self.model._out is None else self.model._out[:, -1].tolist()
            state.note("experts", shares=[round(x, 4) for x in shares], contrast=budget.gamma * deepest)
        return tree
