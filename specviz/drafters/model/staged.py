"""Staged speculation: the draft model is itself sped up by speculative decoding with a cheaper drafter (Spector and Re
2308.04623). The rows its own verification yields are the laws its tokens follow."""
from __future__ import annotations

import torch

from ...core import Budget, Drafter, DraftTree, Parts, Scores, State, Target, open_run, play


class Staged(Drafter):
    """parts: how the draft model decodes; its verifier must be exact. All randomness of the inner run is the draft's."""

    def __init__(self, parts: Parts, model: Target):
        self.parts, self.model = parts, model

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.costs = state.costs.anew()
        open_run(self.parts, self.model, state.fork(stream="draft"))

    def propose(self, state: State, budget: Budget) -> DraftTree:
        inner = state.fork(limit=len(state.tokens) - state.start + budget.gamma, stream="draft")
        inner.costs = self.costs  # the draft model's costs, not the target's
        laws, sizes = [], []
        if not inner.done:
            self.model.sync(inner.tokens)
        while not inner.done:
            outcome = play(self.parts, self.model, inner)
            laws += [state.sampling.probs(outcome.scores.logits[row]) for row in outcome.kept]
            sizes.append(len(outcome.committed))
        state.note("staged", rounds=len(sizes), sizes=sizes)
        return DraftTree.chain(inner.tokens[len(state.tokens):], torch.stack(laws)) if laws else DraftTree()
