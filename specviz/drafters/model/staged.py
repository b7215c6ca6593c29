"""Staged speculation: the draft model is itself accelerated by speculative decoding with a cheaper drafter
(Spector and Re 2308.04623). Its verification computes the draft model's distribution at each token, which
is the draft distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import (
    WITHOUT_REPLACEMENT,
    Budget,
    Drafter,
    DraftTree,
    Parts,
    Scores,
    State,
    Target,
    TreeBuilder,
    open_run,
    play,
)
from ...trees import Scorer, Shape, chosen_children, drawn_children, sample_without_replacement, top_k


class StagedDrafter(Drafter):
    """Drafter that decodes with the draft model by a nested speculative run (Spector and Re 2308.04623).
    parts: drafter, policy and verifier of the nested run; the verifier must be exact. The nested run uses
    the run's random stream "draft".

    shape: of the tree. First children are the tokens of the nested run; further children are sampled from
    its distributions, and the levels below them are filled by forward passes of the draft model. Without a
    shape, or at width 1, the draft is the nested run's chain.
    """

    def __init__(self, parts: Parts, model: Target, shape: Shape | None = None):
        self.parts = parts
        self.model = model
        self.shape = shape

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.costs = state.costs.new_empty()
        open_run(self.parts, self.model, state.fork(stream="draft"))

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = (
            None if self.shape is None or budget.width < 2 else self.shape.within(budget.gamma, budget.width)
        )
        deepest = budget.gamma if shape is None else len(_spine(shape))
        tokens, rows = self._inner(state, deepest)
        if not tokens:
            return DraftTree()
        if shape is None:
            return DraftTree.chain(tokens, torch.stack([state.sampling.probs(row) for row in rows]))
        return self._tree(shape, tokens, rows, state)

    def _inner(self, state: State, count: int) -> tuple[list[int], list[Tensor]]:
        """Return up to ``count`` tokens of the draft model and the logits they were drawn from."""
        inner = state.fork(limit=len(state.tokens) - state.start + count, stream="draft")
        inner.costs = self.costs  # the draft model's costs, not the target's
        rows, sizes = [], []
        if not inner.done:
            self.model.sync(inner.tokens)
        while not inner.done:
            outcome = play(self.parts, self.model, inner)
            rows += [outcome.scores.logits[row].clone() for row in outcome.kept]
            if state.saves_draft_logits:
                before = inner.tokens[len(state.tokens) : len(inner.tokens) - len(outcome.committed)]
                state.save_draft_logits(
                    outcome.scores.model_logits[list(outcome.kept)],
                    [[*before, *outcome.committed[:at]] for at in range(len(outcome.kept))],
                )
            sizes.append(len(outcome.committed))
        state.note("staged", rounds=len(sizes), sizes=sizes)
        return inner.tokens[len(state.tokens) :], rows

    def _tree(self, shape: Shape, tokens: list[int], rows: list[Tensor], state: State) -> DraftTree:
        builder = TreeBuilder()
        at = {-1: -1}
        node = -1
        spine = _spine(shape)[: len(tokens)]
        for place, token, row in zip(spine, tokens, rows):
            above = shape.parents[place]
            siblings = [
                i for i, parent in enumerate(shape.parents) if parent == above
            ]  # in the order of their ranks
            at |= zip(siblings, self._children(builder, node, token, row, len(siblings), state))
            node = at[place]
        inside = set(spine) | {-1}
        grow = [place for place in at if place not in inside and place in shape.fanout]
        if grow:
            self._fill(builder, shape, at, grow, [at[place] for place in spine], state)
        return builder.tree()

    @staticmethod
    def _children(
        builder: TreeBuilder, parent: int, token: int, row: Tensor, count: int, state: State
    ) -> list[int]:
        """Add the inner run's token and its siblings: sampled without replacement, or at temperature 0 the
        next most probable ones."""
        if state.sampling.greedy:
            others = [x for x in top_k(row[None], count)[1][0].tolist() if x != token][: count - 1]
            return [builder.add(x, parent) for x in (token, *others)]
        probs = state.sampling.probs(row)
        draw, rest = builder.begin(probs, WITHOUT_REPLACEMENT), probs.clone()
        rest[token] = 0
        mass = float(rest.sum())
        others = sample_without_replacement(rest / mass, count - 1, state) if mass > 0 and count > 1 else []
        return [builder.add(x, parent, draw) for x in (token, *others)]

    def _fill(
        self,
        builder: TreeBuilder,
        shape: Shape,
        at: dict[int, int],
        grow: list[int],
        spine: list[int],
        state: State,
    ) -> None:
        """Fill the levels below the further children, one draft pass per level; the first also covers the
        inner run's path."""
        self.model.sync(state.tokens)
        scorer, children = (
            Scorer(self.model, state),
            chosen_children if state.sampling.greedy else drawn_children,
        )
        scorer.logits(builder, (-1,))
        known = spine[: max((shape.depths[place] for place in grow), default=1) - 1]
        while grow:
            nodes = [at[place] for place in grow]
            rows = scorer.logits(builder, [*known, *nodes])[len(known) :]
            made = children(builder, nodes, [shape.fanout[place] for place in grow], rows, state)
            known = []
            below = []
            for place, parent in enumerate(shape.parents):
                if parent in grow and shape.ranks[place] < len(made[grow.index(parent)]):
                    at[place] = made[grow.index(parent)][shape.ranks[place]]
                    below += [place] if place in shape.fanout else []
            grow = below


def _spine(shape: Shape) -> list[int]:
    """Return the indices of the path of first children."""
    out, at = [], -1
    for place, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
        if parent == at and rank == 0:
            out.append(place)
            at = place
    return out
