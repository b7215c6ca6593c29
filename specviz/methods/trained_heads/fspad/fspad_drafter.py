"""Draft with FSPAD's head (arXiv 2408.15562), which has two output states: one predicts the token, the
other is fed back."""

from __future__ import annotations

from torch.nn import functional as F

from ....core import Budget, DraftTree, State
from ....drafters.heads.features import FeatureDrafter


class FspadTree(FeatureDrafter):
    """Drafter with FSPAD's head (Gui et al. 2408.15562). A note reports the cosine similarity of the head's
    two output states for each position of the draft."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = super().propose(state, budget)
        if len(tree):
            out, net = self.model._out, self.model.net
            state.note(
                "halves",
                likeness=[
                    round(x, 4) for x in F.cosine_similarity(net.predict(out), net.feedback(out), -1).tolist()
                ],
            )
        return tree
