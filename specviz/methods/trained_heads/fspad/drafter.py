"""Draft with FSPAD's head (arXiv 2408.15562), which separates the state that predicts from the state that is fed back."""
from __future__ import annotations

from torch.nn import functional as F

from ....core import Budget, DraftTree, State
from ....drafters.heads.features import Features


class FspadTree(Features):
    """Draft as Features does, and record the cosine similarity of each row's two states."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = super().propose(state, budget)
        if len(tree):
            out, net = self.model._out, self.model.net
            state.note("halves", likeness=[round(x, 4) for x in F.cosine_similarity(net.predict(out), net.feedback(out), -1).tolist()])
        return tree
