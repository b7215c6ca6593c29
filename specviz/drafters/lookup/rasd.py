"""Merge a draft model's tree with a retrieved one: RASD (Quan et al. 2503.03434).

The retrieved tree is pruned by the draft model's first distribution (a branch must start with one of its top-k tokens) and merged with
the draft model's tree along common prefixes. Sampled nodes keep their distributions, retrieved ones are deterministic. The paper's
constants are not public; those here are from a re-implementation.
"""
from __future__ import annotations

from torch import Tensor

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target
from ...trees import Shape
from ..combined.fusion import join
from ..model.chain import DraftShape


class FirstRowRecorder:
    """Wrapper of a draft model that keeps its logits after the last committed token, ``first`` [vocab]."""

    def __init__(self, model: Target):
        self._model = model
        self.first: Tensor | None = None

    def sync(self, tokens) -> Scores:
        return self._model.sync(tokens)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        scores = self._model.score(tree, start)
        if not start:
            self.first = scores.logits[0]
        return scores


class PrunedUnion(Drafter):
    """Draft the union of a draft model's tree and a pruned retrieved tree. model, shape, drawn: of the draft model's
    tree; retrieval: a drafter of chosen nodes; top: number of the draft model's top tokens with which a retrieved
    branch may start; room: maximum number of retrieved nodes."""

    def __init__(self, model: Target, shape: Shape, drawn: bool, retrieval: Drafter, top: int = 10, room: int = 32):
        self.model = FirstRowRecorder(model)
        self.draft, self.retrieval, self.top, self.room = DraftShape(self.model, shape, drawn), retrieval, top, room

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.draft.start(state, target, prefill)
        self.retrieval.start(state, target, prefill)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.draft.observe(state, outcome)
        self.retrieval.observe(state, outcome)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        drafted = self.draft.propose(state, budget)
        found = self.retrieval.propose(state, budget)
        first = self.model.first
        kept = prune(found, first, self.top, self.room) if first is not None and len(found) else found
        tree, owners = join([drafted, kept])
        names = {(0,): "draft", (1,): "retrieved", (0, 1): "both"}
        state.note("fused", by=[names[who] for who in owners], found=len(found), kept=len(kept))
        return tree


def prune(tree: DraftTree, first: Tensor, top: int, room: int) -> DraftTree:
    """Keep the branches that start with one of the top-k tokens of ``first`` [vocab], most probable first, up to ``room`` nodes.

    Only for trees of deterministic nodes, because the selection depends on the tokens it drops.
    """
    rank = {token: place for place, token in enumerate(first.topk(min(top, len(first))).indices.tolist())}
    heads = [tree.path(i)[0] for i in range(len(tree))]
    good = [i for i in range(len(tree)) if tree.tokens[heads[i]] in rank]
    good.sort(key=lambda i: (rank[tree.tokens[heads[i]]], i))  # parents precede their children
    return tree.keep(good[:room], by_token=True)
