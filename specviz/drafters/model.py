"""Drafting with a small language model that has its own cache (Leviathan et al. 2211.17192; Chen et al. 2302.01318).

The model follows any state.tokens: ``sync`` keeps what agrees and drops the rest, so nothing here ever rolls back.
"""
from __future__ import annotations

from ..core import IID, Budget, Drafter, DraftTree, State, Step, Target, TreeBuilder, never
from ..trees import Scorer, Shape, draw_one, grow_shape


class DraftChain(Drafter):
    """One path, each token drawn from the draft model's law at the run's sampling."""

    def __init__(self, model: Target):
        self.model = model

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build, scorer, node = TreeBuilder(), Scorer(self.model), -1
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        for depth in range(budget.gamma):
            logits = scorer.rows(build, (node,))[0]
            token, law = draw_one(logits, state)
            node = build.add(token, node, build.begin(law, IID))
            # at temperature 0 the law is one-hot and says nothing about confidence: a policy gets the draft's own belief
            if budget.stop is not never and budget.stop(Step(token, belief(logits, law, state), depth)):
                break
        return build.tree()


class DraftShape(Drafter):
    """A tree of a shape known beforehand; children drawn without replacement, or the most likely ones.

    At temperature 0 a drawn tree would be a chain, so the most likely children stand in for it, as MCSD and Sequoia do.
    """

    def __init__(self, model: Target, shape: Shape, drawn: bool):
        self.model, self.shape, self.drawn = model, shape, drawn

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = self.shape.within(budget.gamma, budget.width)
        if not len(shape):
            return DraftTree()
        self.model.sync(state.tokens)
        return grow_shape(self.model, shape, state, self.drawn and not state.sampling.greedy)


def belief(logits, law, state: State):
    """The draft model's distribution [vocab] as a policy reads it: the law drawn from, or plain softmax at temperature 0."""
    return logits.softmax(-1) if state.sampling.greedy else law
