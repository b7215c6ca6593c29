"""Predict the token after next from the last logits: LogitSpec (Liu et al. 2507.01449). The top-k tokens of
the distribution that produced the last token start one branch each, extended by what followed that token in
the context."""

from __future__ import annotations

from ...core import Budget, Origin, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.suffix_automaton import NgramIndexes
from ...trees import top_k
from .copying import ContextIndexDrafter

REACH = (
    (9, 4),
    (33, 3),
)  # (rank, tokens): branches below this rank have up to that many tokens, later ones one


class LogitSpecDrafter(ContextIndexDrafter):
    """Drafter of a tree of chosen nodes (LogitSpec, Liu et al. 2507.01449): a branch for each of the top
    tokens of the logits that produced the last token, extended by what followed that token in the context,
    and a branch copied after the last tokens.

    longest: longest suffix that is looked up; reach: maximum number of tokens copied directly after the
    root."""

    index: NgramIndexes
    restartable = False  # needs the target's logits of the last position

    def __init__(self, longest: int = 3, reach: int = 6):
        super().__init__(NgramIndexes(longest))
        self.reach = reach
        self.likely: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.row = prefill.logits[-1] if len(prefill.logits) else None

    def observe(self, state: State, outcome: Outcome) -> None:
        super().observe(state, outcome)
        self.row = outcome.scores.logits[outcome.kept[-1]]

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        tokens, under = state.tokens, {}
        end, self.matched = self.index.match(latest=True)
        if end:
            self.add_copied_chain(builder, under, state, -1, end, min(self.reach, budget.gamma), budget.nodes)
        likely = [] if self.row is None else top_k(self.row[None], budget.nodes + 1)[1][0].tolist()
        for rank, token in enumerate(likely[: budget.width]):
            if len(builder) >= budget.nodes:
                break
            if token == tokens[-1]:
                continue
            node = self.child_with_token(builder, under, token, -1, None)
            reach = min(next((most for below, most in REACH if rank < below), 1), budget.gamma)
            if reach > 1 and token not in state.stop:
                end = self.continuation_of(tokens, token)
                self.add_copied_chain(builder, under, state, node, end, reach - 1 if end else 0, budget.nodes)
        if len(builder):
            state.note(
                "successors", rows=[{"tok": tokens[-1], "tokens": likely, "fresh": True}], keep=len(likely)
            )

    def continuation_of(self, tokens: list[int], token: int) -> int:
        """Find the longest suffix s of ``tokens`` such that s followed by ``token`` occurred before. Return
        the position after its latest occurrence, 0 if there is none."""
        for index in reversed(self.index.sizes):
            places = (
                index.places.get((*tokens[len(tokens) - index.n + 1 :], token))
                if index.n <= len(tokens)
                else None
            )
            if places and places[-1] < len(tokens):
                return places[-1]
        return 0

    def add_copied_chain(
        self, builder: TreeBuilder, under: dict, state: State, node: int, position: int, count: int, room: int
    ) -> None:
        """Add up to ``count`` context tokens from ``position`` as a chain under ``node``, while the tree
        has at most ``room`` nodes. under: (parent, token) -> node."""
        for at in range(position, min(position + count, len(state.tokens))):
            token = state.tokens[at]
            if len(builder) >= room and (node, token) not in under:
                return
            node = self.child_with_token(builder, under, token, node, Origin("context", at, at + 1))
            if token in state.stop:
                return

    @staticmethod
    def child_with_token(
        builder: TreeBuilder, under: dict, token: int, node: int, origin: Origin | None
    ) -> int:
        """Return the child of ``node`` with this token; add it if it does not exist. under: (parent, token)
        -> node."""
        if (node, token) not in under:
            under[node, token] = builder.add(token, node, origin=origin)
        return under[node, token]
