"""Merge a draft model's tree with a retrieved one: RASD (Quan et al. 2503.03434).

The retrieved tree is pruned by the draft model's first distribution (a branch must start with one of its
top-k tokens) and merged with the draft model's tree along common prefixes. Sampled nodes keep their
distributions, retrieved ones are deterministic. The paper's constants are not public; those here are from a
re-implementation.
"""

from __future__ import annotations

from torch import Tensor

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target
from ...trees import Shape
from ..combined.fusion import merge_trees_with_sources
from ..model.chain import DraftShape


class RootLogitsRecorder:
    """A draft model that keeps its logits after the last committed token: ``root_logits`` [vocab], None
    before the first draft."""

    def __init__(self, model: Target):
        self._model = model
        self.root_logits: Tensor | None = None

    def sync(self, tokens) -> Scores:
        return self._model.sync(tokens)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        scores = self._model.score(tree, start)
        if not start:
            self.root_logits = scores.logits[0]
        return scores


class PrunedUnion(Drafter):
    """Drafter of the union of a draft model's tree and a pruned retrieved tree (RASD, Quan et al.
    2503.03434).

    model, shape, drawn: draft model and shape of its tree, and whether its tokens are sampled; retrieval: a
    drafter of chosen nodes; top: a retrieved branch must start with one of this many top tokens of the
    draft model; max_nodes: maximum number of retrieved nodes."""

    def __init__(
        self, model: Target, shape: Shape, drawn: bool, retrieval: Drafter, top: int = 10, max_nodes: int = 32
    ):
        self.model = RootLogitsRecorder(model)
        self.draft = DraftShape(self.model, shape, drawn)
        self.retrieval = retrieval
        self.top = top
        self.max_nodes = max_nodes

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.draft.start(state, target, prefill)
        self.retrieval.start(state, target, prefill)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.draft.observe(state, outcome)
        self.retrieval.observe(state, outcome)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        drafted = self.draft.propose(state, budget)
        found = self.retrieval.propose(state, budget)
        root_logits = self.model.root_logits
        kept = (
            prune(found, root_logits, self.top, self.max_nodes)
            if root_logits is not None and len(found)
            else found
        )
        tree, owners = merge_trees_with_sources([drafted, kept])
        names = {(0,): "draft", (1,): "retrieved", (0, 1): "both"}
        state.note("fused", by=[names[who] for who in owners], found=len(found), kept=len(kept))
        return tree


def prune(tree: DraftTree, root_logits: Tensor, top: int, max_nodes: int) -> DraftTree:
    """Return the tree cut to branches that start with one of the ``top`` most probable tokens of
    root_logits [vocab], most probable branches first, up to ``max_nodes`` nodes.

    Only for trees of chosen nodes, because the selection depends on the tokens that it drops.
    """
    rank = {
        token: place
        for place, token in enumerate(root_logits.topk(min(top, len(root_logits))).indices.tolist())
    }
    heads = [tree.path(i)[0] for i in range(len(tree))]
    good = [i for i in range(len(tree)) if tree.tokens[heads[i]] in rank]
    good.sort(key=lambda i: (rank[tree.tokens[heads[i]]], i))  # parents precede their children
    return tree.keep(good[:max_nodes], by_token=True)
