"""Copy several continuations of one match: the lexical part of AdaPLD (Liu et al. 2606.05742)."""

from __future__ import annotations

from ...core import Budget, Origin, State, TreeBuilder
from ...indexes.suffix_automaton import NgramIndexes
from .copying import ContextIndexDrafter

LATEST = 64  # most recent positions examined


class BranchedCopy(ContextIndexDrafter):
    """Drafter of a tree: the ``branches`` latest distinct continuations of the longest suffix of the
    context that occurred before, merged along common prefixes. min_match, longest: bounds of the suffix's
    length, in tokens."""

    index: NgramIndexes

    def __init__(self, longest: int = 3, min_match: int = 2, branches: int = 3):
        super().__init__(NgramIndexes(longest))
        self.min_match, self.branches = min(min_match, longest), branches

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        places, n = self.match()
        if not places:
            return
        self.matched = n
        under = {}
        used = []
        for end in reversed(places[-LATEST:]):
            if len(used) < self.branches and self.add_chain(builder, under, state, end, budget):
                used.append(end)
        state.note("match", start=used[0] - n, end=used[0], n=n, copied=len(builder))

    def match(self) -> tuple[list[int], int]:
        """Return the positions after the earlier occurrences of the longest matching suffix, and its
        length; ([], 0) without any."""
        for index in reversed(self.index.sizes[self.min_match - 1 :]):
            if places := index.before():
                return places, index.n
        return [], 0

    def add_chain(self, builder: TreeBuilder, under: dict, state: State, end: int, budget: Budget) -> bool:
        """Add the chain copied from position ``end`` of the context, merged with the existing nodes; return
        whether it added a node. under: (parent, token) -> node."""
        node, before = -1, len(builder)
        for at in range(end, min(end + budget.gamma, len(state.tokens))):
            token = state.tokens[at]
            if (node, token) not in under:
                if len(builder) >= budget.nodes or (node in {p for p, _ in under} and budget.width < 2):
                    break
                under[node, token] = builder.add(token, node, origin=Origin("context", at, at + 1))
            node = under[node, token]
            if token in state.stop:
                break
        return len(builder) > before
