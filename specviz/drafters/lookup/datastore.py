"""Draft from a datastore: REST (He et al. 2311.08252). The suffix of the context is looked up in a suffix
array; the most frequent continuations form a tree of chosen nodes, each with one of the positions it was
copied from.

Published REST prunes its tree path by path and resamples after a mismatch, which does not keep the
distribution under sampling. Here the tree holds the most frequent prefixes and is verified like any other.
"""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Origin, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.earlier_answers import Memory
from ...indexes.store import Store
from .copying import SuffixCopy, copy_chain
from .counted_suffixes import PastAnswers, extend_match


class StoreTree(Drafter):
    """Drafter of a tree: the most frequent continuations of the context's longest suffix that occurs in a
    datastore (REST, He et al. 2311.08252).

    longest, min_match: bounds of the suffix's length; hits: maximum number of occurrences examined. Depth,
    width and nodes come from the budget. matched: number of context tokens that matched before the last
    proposal.
    """

    matched = 0

    def __init__(self, store: Store, longest: int = 16, min_match: int = 2, hits: int = 5000):
        self.store = store
        self.longest = longest
        self.min_match = min_match
        self.hits = hits

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        if budget.gamma > 0:
            n, places = self.draft(builder, state, budget)
            if n:
                state.note("retrieved", source=self.store.name, n=n, places=places, nodes=len(builder))
        return builder.tree()

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> tuple[int, int]:
        """Add the draft's nodes to ``builder``; return the length of the match and its number of
        occurrences in the datastore."""
        array = self.store.array
        n, low, high = array.longest(state.tokens, self.longest, self.min_match)
        found = (
            array.frequent_continuations(
                n,
                low,
                high,
                max_depth=budget.gamma,
                max_nodes=budget.nodes,
                hits=self.hits,
                max_children=budget.width,
            )
            if n
            else []
        )
        at = {-1: -1}
        for position, (token, parent, _, where) in enumerate(found):
            if parent in at:
                node = builder.add(token, at[parent], origin=Origin(self.store.name, where, where + 1))
                if token not in state.stop:  # nothing is written after an end token
                    at[position] = node
        self.matched = n
        return n, high - low


class LongerMatch(SuffixCopy):
    """Drafter that copies from the context, past answers or a datastore, whichever has the longest match
    (SAM-Decoding, Hu et al. 2411.10666).

    A match outside the context counts ``bias`` tokens less. A datastore match of at least half the suffix
    array's sorting depth is copied as a chain; a shorter one yields a tree. min_match, stretch: as in
    SuffixCopy; memory: the session's past answers.
    """

    def __init__(
        self,
        store: Store,
        min_match: int = 5,
        stretch: float = 4.0,
        bias: int = 5,
        memory: Memory | None = None,
    ):
        super().__init__(min_match, stretch)
        self.store = StoreTree(store)
        self.long = max(1, store.array.depth // 2)
        self.bias, self.memory = bias, memory or Memory()
        self.past = self.memory.table("answers to copy from", lambda: PastAnswers(0, self.memory.capacity))

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.past.read(self.memory)
        self.halves, self.read = (
            list(self.past.halves),
            [],
        )  # a snapshot: other runs may add answers meanwhile
        self.ends = [(0, 0) for _ in self.halves]
        self.follow(state.tokens)

    def observe(self, state: State, outcome: Outcome) -> None:
        super().observe(state, outcome)
        self.follow(state.tokens)

    def follow(self, tokens: list[int]) -> None:
        """Update the longest match of the committed text in each half of the past answers."""
        self.ends = self.past_matches(tokens)
        self.read = list(tokens)

    def past_matches(self, tokens: list[int]) -> list[tuple[int, int]]:
        """Return (state, length) of the longest matching suffix of ``tokens`` in each half of the past
        answers, continuing from the committed text."""
        goes_on = tokens[: len(self.read)] == self.read
        return [
            extend_match(
                half, tokens[len(self.read) :] if goes_on else tokens, *(known if goes_on else (0, 0))
            )
            for half, known in zip(self.halves, self.ends)
        ]

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        own, _ = self.index.longest()
        min_match = self.min_match + self.bias
        (known, half, end) = max(
            (
                (n, half, half.first[at])
                for half, (at, n) in zip(self.halves, self.past_matches(state.tokens))
            ),
            key=lambda found: found[0],
        )
        other, position = self.store_match(state.tokens, min_match)
        if own >= self.min_match and own >= max(known, other) - self.bias:
            super().draft(builder, state, budget)
        elif known >= max(min_match, other):
            self.copy(builder, state, budget, half.text, end, known, "answers")
        elif other >= self.long:
            self.copy(
                builder, state, budget, self.store.store.array.tokens, position, other, self.store.store.name
            )
        elif other:
            n, places = self.store.draft(builder, state, budget)
            self.matched = n
            state.note("retrieved", source=self.store.store.name, n=n, places=places, nodes=len(builder))

    def store_match(self, tokens: list[int], min_match: int) -> tuple[int, int]:
        """Return the length of the longest suffix of ``tokens``, of at least ``min_match`` tokens, that
        occurs in the datastore, and the position after the occurrence; position 0 for a match too short to
        be copied as a chain."""
        array = self.store.store.array
        n, low, high = array.longest(tokens, array.depth, min_match)
        return array.extend_match(tokens, n, low, high) if n >= self.long else (n, 0)

    def copy(
        self, builder: TreeBuilder, state: State, budget: Budget, text, position: int, n: int, source: str
    ) -> None:
        """Copy a chain from ``position`` of another text, up to the end of its document: at most 1 +
        stretch * n tokens after a match of n tokens."""
        count = min(budget.gamma, 1 + int(self.stretch * n))
        copied = copy_chain(builder, text, position, count, state.stop, source)
        self.matched = n
        state.note("match", source=source, start=position - n, end=position, n=n, copied=copied)
