"""A draft model that writes only while it is sure (BiLD, Kim et al. 2302.07863): where its best token has too small a probability,
it hands over to the target before it writes anything."""
from __future__ import annotations

from ...core import IID, Budget, DraftTree, State, Target, TreeBuilder
from ...trees import Scorer, draw_one
from .chain import WithModel


class SureChain(WithModel):
    """A chain that ends before the first place where the most likely token has less than ``least``.

    The place is judged by its law alone, before a token is drawn there. Notes where it fell back, and why: "unsure", or "full" when
    the budget was used up.
    """

    def __init__(self, model: Target, least: float = 0.6):
        super().__init__(model)
        self.least = least

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build, scorer, node, sure = TreeBuilder(), Scorer(self.model), -1, []
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        while len(build) < budget.gamma:
            logits = scorer.rows(build, (node,))[0]
            sure.append(round(float((logits.softmax(-1) if state.sampling.greedy else state.sampling.probs(logits)).max()), 5))
            if sure[-1] < self.least:
                break
            token, probs = draw_one(logits, state)
            node = build.add(token, node, build.begin(probs, IID))
        if sure:
            state.note("fallback", at=len(state.tokens) + len(build), sure=sure, least=self.least,
                       why="unsure" if sure[-1] < self.least else "full")
        return build.tree()
