"""Draft only while the draft model is confident (BiLD, Kim et al. 2302.07863): fall back to the target
before a position whose top-1 probability is too low."""

from __future__ import annotations

from ...core import IID, Budget, DraftingModel, DraftTree, State, TreeBuilder
from ...trees import Scorer, sample_token, top_probs
from .chain import ModelDrafter


class ConfidentChain(ModelDrafter):
    """Drafter of a chain that ends before the first position at which the draft model's top-1 probability
    is below ``min_prob`` (BiLD, Kim et al. 2302.07863). The decision uses the distribution before a token
    is sampled.

    The note "fallback" tells where and why the draft ended: "unsure", or "full" if the budget was used up."""

    def __init__(self, model: DraftingModel, min_prob: float = 0.6):
        super().__init__(model)
        self.min_prob = min_prob

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        scorer = Scorer(self.model, state)
        node = -1
        sure = []
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        while len(builder) < budget.gamma:
            logits = scorer.logits(builder, (node,))[0]
            greedy = state.sampling.greedy
            best = top_probs(logits[None]) if greedy else state.sampling.probs(logits).max()
            sure.append(round(float(best), 5))
            if sure[-1] < self.min_prob:
                break
            token, probs = sample_token(logits, state)
            node = builder.add(token, node, builder.begin(probs, IID))
        if sure:
            state.note(
                "fallback",
                at=len(state.tokens) + len(builder),
                sure=sure,
                least=self.min_prob,
                why="unsure" if sure[-1] < self.min_prob else "full",
            )
        return builder.tree()
