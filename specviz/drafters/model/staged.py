"""Staged speculation: the draft model is itself sped up by speculative decoding with a cheaper drafter (Spector and Re
2308.04623). The rows its own verification yields are the laws its tokens follow."""
from __future__ import annotations

import torch
from torch import Tensor

from ...core import (WITHOUT_REPLACEMENT, Budget, Drafter, DraftTree, Parts, Scores, State, Target, TreeBuilder, open_run,
                     play)
from ...trees import Scorer, Shape, best, chosen_children, draw_some, drawn_children


class Staged(Drafter):
    """parts: how the draft model decodes; its verifier must be exact. All randomness of the inner run is the draft's.

    shape: of the tree. Its first children are what the inner run writes; further children are drawn from the laws that run yields, and
    what stands below them is filled in by passes of the draft model. Without a shape, or of width 1, it is the inner run's chain.
    """

    def __init__(self, parts: Parts, model: Target, shape: Shape | None = None):
        self.parts, self.model, self.shape = parts, model, shape

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.costs = state.costs.anew()
        open_run(self.parts, self.model, state.fork(stream="draft"))

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = None if self.shape is None or budget.width < 2 else self.shape.within(budget.gamma, budget.width)
        deepest = budget.gamma if shape is None else len(_spine(shape))
        tokens, rows = self._inner(state, deepest)
        if not tokens:
            return DraftTree()
        if shape is None:
            return DraftTree.chain(tokens, torch.stack([state.sampling.probs(row) for row in rows]))
        return self._tree(shape, tokens, rows, state)

    def _inner(self, state: State, count: int) -> tuple[list[int], list[Tensor]]:
        """Up to ``count`` tokens of the draft model, and for each its logits there."""
        inner = state.fork(limit=len(state.tokens) - state.start + count, stream="draft")
        inner.costs = self.costs  # the draft model's costs, not the target's
        rows, sizes = [], []
        if not inner.done:
            self.model.sync(inner.tokens)
        while not inner.done:
            outcome = play(self.parts, self.model, inner)
            rows += [outcome.scores.logits[row].clone() for row in outcome.kept]
            sizes.append(len(outcome.committed))
        state.note("staged", rounds=len(sizes), sizes=sizes)
        return inner.tokens[len(state.tokens):], rows

    def _tree(self, shape: Shape, tokens: list[int], rows: list[Tensor], state: State) -> DraftTree:
        build, at, node, spine = TreeBuilder(), {-1: -1}, -1, _spine(shape)[:len(tokens)]
        for place, token, row in zip(spine, tokens, rows):
            above = shape.parents[place]
            siblings = [i for i, parent in enumerate(shape.parents) if parent == above]  # in the order of their ranks
            at |= zip(siblings, self._children(build, node, token, row, len(siblings), state))
            node = at[place]
        inside = set(spine) | {-1}
        grow = [place for place in at if place not in inside and place in shape.fanout]
        if grow:
            self._fill(build, shape, at, grow, [at[place] for place in spine], state)
        return build.tree()

    @staticmethod
    def _children(build: TreeBuilder, parent: int, token: int, row: Tensor, count: int, state: State) -> list[int]:
        """The inner run's token and others after it: drawn from what its law leaves, or at temperature 0 the next likely ones."""
        if state.sampling.greedy:
            others = [x for x in best(row[None], count)[1][0].tolist() if x != token][:count - 1]
            return [build.add(x, parent) for x in (token, *others)]
        probs = state.sampling.probs(row)
        draw, rest = build.begin(probs, WITHOUT_REPLACEMENT), probs.clone()
        rest[token] = 0
        mass = float(rest.sum())
        others = draw_some(rest / mass, count - 1, state) if mass > 0 and count > 1 else []
        return [build.add(x, parent, draw) for x in (token, *others)]

    def _fill(self, build: TreeBuilder, shape: Shape, at: dict[int, int], grow: list[int], spine: list[int], state: State) -> None:
        """Below the further children, a pass of the draft model a level; the first also reads the inner run's path."""
        self.model.sync(state.tokens)
        scorer, children = Scorer(self.model), chosen_children if state.sampling.greedy else drawn_children
        scorer.rows(build, (-1,))
        known = spine[:max((shape.depths[place] for place in grow), default=1) - 1]
        while grow:
            nodes = [at[place] for place in grow]
            rows = scorer.rows(build, [*known, *nodes])[len(known):]
            made, known, below = children(build, nodes, [shape.fanout[place] for place in grow], rows, state), [], []
            for place, parent in enumerate(shape.parents):
                if parent in grow and shape.ranks[place] < len(made[grow.index(parent)]):
                    at[place] = made[grow.index(parent)][shape.ranks[place]]
                    below += [place] if place in shape.fanout else []
            grow = below


def _spine(shape: Shape) -> list[int]:
    """The places of first children of first children."""
    out, at = [], -1
    for place, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
        if parent == at and rank == 0:
            out.append(place)
            at = place
    return out
