"""DReSD with a datastore (Gritta et al. 2502.15572): the hidden state that produced the last token
retrieves the most similar positions of the same token in a hidden-state datastore built with the same
target; their continuations are the draft.
"""

from __future__ import annotations

from torch import Tensor

from ...core import Budget, Drafter, DraftTree, Origin, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.nearest import is_made_for
from ...indexes.store import Store, StoreError
from ...indexes.suffix_array import PART


class StoreStates(Drafter):
    """Drafter of a tree: the continuations of the ``neighbours`` datastore positions with the most similar
    hidden states (DReSD, Gritta et al. 2502.15572), one chain each, merged along common prefixes.

    min_similarity: smallest cosine similarity of a position that is used. matched: similarity of the best
    position times 8, rounded down. Raises StoreError if the store has no hidden states, or those of another
    target."""

    hidden_states = frozenset({"final"})
    needs = frozenset({"tap:final"})
    restartable = False  # needs the target's hidden states
    matched = 0

    def __init__(self, store: Store, target: Target, neighbours: int = 3, min_similarity: float = 0.0):
        if store.dense is None or not is_made_for(store.facts.get("states"), target):
            raise StoreError(
                f"The datastore {store.name!r} holds no hidden states of this target: build it again with "
                "`python -m specviz.training.datastore --dense`.",
                "datastore.no_states",
            )
        self.store = store
        self.dense = store.dense
        self.neighbours = neighbours
        self.min_similarity = min_similarity
        self.state: Tensor | None = None  # [d], produced the last token

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        rows = prefill.hidden_states["final"]
        self.state = rows[-1] if len(rows) else None  # a prompt of one token has none

    def observe(self, state: State, outcome: Outcome) -> None:
        self.state = outcome.scores.hidden_states["final"][outcome.kept[-1]]

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, dense = TreeBuilder(), self.dense
        if budget.gamma <= 0 or self.state is None:
            return builder.tree()
        key = dense.frame.keys(self.state[None])[0]
        near = [
            (p, x)
            for p, x in dense.nearest(self.store.array, state.tokens[-1], key, self.neighbours)
            if x >= self.min_similarity
        ]
        for position, _ in near[: budget.width]:
            self.add_chain(builder, position + 1, budget, state.stop)
        if near:
            self.matched = max(0, int(8 * near[0][1]))
            state.note(
                "neighbours",
                source=self.store.name,
                places=[p + 1 for p, _ in near],
                likeness=[round(x, 4) for _, x in near],
                nodes=len(builder),
                how=dense.how,
            )
        return builder.tree()

    def add_chain(self, builder: TreeBuilder, position: int, budget: Budget, stop: frozenset[int]) -> None:
        """Add the chain from ``position`` of the datastore, up to the end of its document, merged with the
        existing nodes."""
        tokens = self.store.array.tokens
        node, under = -1, {(builder.parents[i], builder.tokens[i]): i for i in range(len(builder))}
        for at in range(position, min(position + budget.gamma, len(tokens))):
            token = int(tokens[at])
            if token == PART:
                return
            if (node, token) in under:
                node = under[node, token]
            elif len(builder) < budget.nodes:
                node = builder.add(token, node, origin=Origin(self.store.name, at, at + 1))
            if token in stop or len(builder) >= budget.nodes:
                return
