"""Dense retrieval by hidden state: DReSD (Gritta et al. 2502.15572).

Every position of the context is keyed by the target's last hidden state. The hidden state that produced the
last token retrieves the most similar positions at which the same token was generated, and their
continuations are the draft. The paper searches a large datastore reduced to 64 dimensions with an
approximate index; here the datastore is the context, small enough for exact search.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import (
    Budget,
    Drafter,
    DraftTree,
    Origin,
    Outcome,
    Scores,
    State,
    Target,
    TreeBuilder,
    select_rows,
)
from ...indexes.suffix_automaton import NgramIndex

MOST = 4096  # most recent positions of a token that are compared


class HiddenStateCopy(Drafter):
    """Drafter of a tree: the continuations of the ``neighbours`` earlier positions of the context with the
    most similar hidden states (DReSD, Gritta et al. 2502.15572), one chain each, merged along common
    prefixes.

    min_similarity: smallest cosine similarity of a position that is used; dims: hidden states are reduced
    to this many principal components of the prompt's, if the prompt has more tokens. matched: similarity of
    the best position times 8, rounded down."""

    matched = 0

    hidden_states = frozenset({"final"})
    needs = frozenset({"tap:final"})
    restartable = False  # needs the target's hidden states

    def __init__(self, neighbours: int = 3, min_similarity: float = 0.0, dims: int = 64):
        self.neighbours = neighbours
        self.min_similarity = min_similarity
        self.dims = dims
        self.places = NgramIndex(1)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        rows = prefill.hidden_states["final"]
        self.places.clear()
        self.places.extend(state.tokens)
        self.first, self.count = (
            prefill.first_position,
            len(rows),
        )  # states of positions first .. first + count - 1
        self.axes: Tensor | None = None
        if len(rows):
            self.centre, self.spread = rows.float().mean(0), rows.float().std(0, correction=0) + 1e-3
            if self.dims < min(rows.shape):
                self.axes = principal_components((rows.float() - self.centre) / self.spread, self.dims)
        width = 0 if not len(rows) else rows.shape[1] if self.axes is None else self.dims
        self.keys = torch.zeros(max(64, 2 * len(rows)), width, dtype=torch.float32, device=rows.device)
        if len(rows):
            self.keys[: len(rows)] = self._key(rows)

    def observe(self, state: State, outcome: Outcome) -> None:
        rows = select_rows(outcome.scores.hidden_states["final"], outcome.kept)
        if not self.keys.shape[1]:  # prompt of one token: there were no hidden states before
            self.first = outcome.scores.first_position
            self.keys = self.keys.new_zeros(64, rows.shape[1])
            self.centre, self.spread = rows.float().mean(0), rows.new_ones(rows.shape[1]).float()
        if self.count + len(rows) > len(self.keys):
            self.keys = torch.cat([self.keys, torch.zeros_like(self.keys)])
        self.keys[self.count : self.count + len(rows)] = self._key(rows)
        self.count += len(rows)
        self.places.extend(state.tokens)

    def _key(self, rows: Tensor) -> Tensor:
        """Standardise by the prompt's hidden states, project on their principal components, normalise:
        [rows, d] or [rows, dims]."""
        z = (rows.float() - self.centre) / self.spread
        return torch.nn.functional.normalize(z if self.axes is None else z @ self.axes, dim=-1)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        tokens = state.tokens
        if budget.gamma > 0 and self.count and len(tokens) == self.first + self.count + 1:
            near = self.nearest(tokens)
            for position, _ in near[: budget.width]:
                self.add_chain(builder, tokens, position, budget, state.stop)
            if near:
                self.matched = max(0, int(8 * near[0][1]))
                state.note(
                    "neighbours",
                    places=[p for p, _ in near],
                    likeness=[round(x, 4) for _, x in near],
                    nodes=len(builder),
                )
        return builder.tree()

    def nearest(self, tokens) -> list[tuple[int, float]]:
        """Return (position, cosine similarity) for the earlier occurrences of the last token with the most
        similar hidden states, most similar first. The position is that of the token after the
        occurrence."""
        ends = [
            end
            for end in self.places.places.get((tokens[-1],), ())[-MOST - 1 :]
            if self.first + 2 <= end < len(tokens)
        ]
        if not ends:
            return []
        before = select_rows(
            self.keys, [end - 2 - self.first for end in ends]
        )  # hidden states that produced the tokens
        likeness = before @ self.keys[self.count - 1]
        found = likeness.topk(min(self.neighbours, len(ends)))
        pairs = torch.stack([found.indices.to(found.values.dtype), found.values]).tolist()
        return [(ends[i], x) for i, x in ((int(i), x) for i, x in zip(*pairs)) if x >= self.min_similarity]

    def add_chain(
        self, builder: TreeBuilder, tokens, position: int, budget: Budget, stop: frozenset[int]
    ) -> None:
        """Add the chain from ``position`` of the context, merged with the existing nodes."""
        node, under = -1, {(builder.parents[i], builder.tokens[i]): i for i in range(len(builder))}
        for at in range(position, min(position + budget.gamma, len(tokens))):
            token = tokens[at]
            if (node, token) in under:
                node = under[node, token]
            elif len(builder) < budget.nodes:
                node = builder.add(token, node, origin=Origin("context", at, at + 1))
            else:
                return
            if token in stop:
                return


def principal_components(z: Tensor, count: int, steps: int = 4) -> Tensor:
    """Return the approximate first ``count`` principal components [d, count] of centred vectors z [n, d],
    by subspace iteration from a fixed start."""
    start = torch.randn(z.shape[1], count, generator=torch.Generator().manual_seed(0)).to(z)
    axes = torch.linalg.qr(start).Q
    for _ in range(steps):
        axes = torch.linalg.qr(z.T @ (z @ axes)).Q
    return axes
