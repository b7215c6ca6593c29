"""Draft a chain with a draft model that contains smaller sub-models (S2D, Kavehzadeh et al. 2407.01955)."""

from __future__ import annotations

from torch import Tensor

from ...core import (
    IID,
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    Scores,
    State,
    Step,
    Target,
    TreeBuilder,
    never_stop,
)
from ...models.exits import sub_model_layers
from ...trees import Scorer, sample_token, top_probs
from .chain import policy_probs


class NestedChain(Drafter):
    """Drafter of a chain with a draft model that contains smaller sub-models: its first layers, the final
    norm and the lm_head (S2D, Kavehzadeh et al. 2407.01955). Each token is sampled from one of them.

    size: index of the sub-model, smallest first; None: for each token the smallest one whose top-1
    probability is at least ``min_top1_prob``, or the largest if none reaches it. The choice depends on
    distributions, not on tokens. A model without layer skipping (capability "skip") has one size."""

    def __init__(self, model: CapableTarget, size: int | None = None, min_top1_prob: float = 0.6):
        self.sizes, self.min_top1_prob = (
            sub_model_layers(model.layers) if "skip" in model.capabilities else (model.layers,),
            min_top1_prob,
        )
        self.views = [
            model if count == model.layers else model.skipping(range(2 * count, 2 * model.layers))
            for count in self.sizes
        ]
        last = len(self.sizes) - 1
        self.used_sizes = range(last + 1) if size is None else (min(size, last) % (last + 1),)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        for at in reversed(self.used_sizes):  # the smaller views share the largest one's cache
            self.views[at].sync(state.tokens)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        used = []
        token_probs = []
        readers: dict[int, SubModelScorer] = {}
        for depth in range(budget.gamma):
            for at in self.used_sizes:
                if at not in readers:
                    readers[at] = SubModelScorer(self.views[at], state)
                logits = readers[at].next_logits(builder)
                prob = float(top_probs(logits[None]))
                if prob >= self.min_top1_prob:
                    break
            token, probs = sample_token(logits, state)
            builder.add(token, len(builder) - 1, builder.begin(probs, IID))
            used.append(at)
            token_probs.append(round(prob, 4))
            if budget.stop is not never_stop and budget.stop(
                Step(token, policy_probs(logits, probs, state), depth)
            ):
                break
        if used:
            limit = self.min_top1_prob if len(self.used_sizes) > 1 else 0.0
            state.note("sizes", layers=list(self.sizes), used=used, sure=token_probs, least=limit)
        return builder.tree()


class SubModelScorer:
    """Scores this round's chain with one sub-model ``view``. Tokens of the chain that it has not processed
    yet are processed when it is used."""

    def __init__(self, view: CapableTarget, state: State):
        view.sync(state.tokens)
        self.state, self.scorer, self.read = state, Scorer(view), 0  # tokens processed, the root included

    def next_logits(self, builder: TreeBuilder) -> Tensor:
        """Return the logits [vocab] after the last token of the chain ``builder``."""
        missing = range(self.read - 1, len(builder))  # -1 is the root
        self.read = len(builder) + 1
        return self.state.process_draft_row(self.scorer.logits(builder, missing)[-1], builder.tokens)
