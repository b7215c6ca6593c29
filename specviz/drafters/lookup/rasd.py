"""Retrieval and a draft model in one tree: RASD (Quan et al. 2503.03434).

The draft model grows its tree; what the text so far suggests is pruned by the draft model's own first law (a branch must begin
with one of its best tokens) and joined to that tree along common prefixes. Drawn nodes keep their laws, retrieved ones are
chosen. The paper's constants are not public; those here are a re-implementation's.
"""
from __future__ import annotations

from torch import Tensor

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target
from ...trees import Shape
from ..several.fused import join
from ..model.chain import DraftShape


class Overheard:
    """A draft model whose law after the last token of the text is kept: ``first`` [vocab], logits."""

    def __init__(self, model: Target):
        self._model, self.first = model, None

    def sync(self, tokens) -> Scores:
        return self._model.sync(tokens)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        scores = self._model.score(tree, start)
        if not start:
            self.first = scores.logits[0]
        return scores


class PrunedUnion(Drafter):
    """model, shape, drawn: of the draft model's tree; retrieval: a drafter of chosen nodes; top: of the draft model's best
    tokens may begin a branch; room: most retrieved nodes."""

    def __init__(self, model: Target, shape: Shape, drawn: bool, retrieval: Drafter, top: int = 10, room: int = 32):
        self.model = Overheard(model)
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
        kept = prune(found, self.model.first, self.top, self.room) if len(found) else found
        tree, owners = join([drafted, kept])
        names = {(0,): "draft", (1,): "retrieved", (0, 1): "both"}
        state.note("fused", by=[names[who] for who in owners], found=len(found), kept=len(kept))
        return tree


def prune(tree: DraftTree, first: Tensor, top: int, room: int) -> DraftTree:
    """The branches that begin with one of the ``top`` best tokens of ``first`` [vocab], likeliest first, up to ``room`` nodes.

    Only for trees of chosen nodes: the cut looks at what it drops.
    """
    rank = {token: place for place, token in enumerate(first.topk(min(top, len(first))).indices.tolist())}
    heads = [tree.path(i)[0] for i in range(len(tree))]
    good = [i for i in range(len(tree)) if tree.tokens[heads[i]] in rank]
    good.sort(key=lambda i: (rank[tree.tokens[heads[i]]], i))  # a parent comes before its children
    return tree.keep(good[:room], looked=True)
