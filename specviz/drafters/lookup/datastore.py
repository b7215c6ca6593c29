"""Drafts from a datastore: REST (He et al. 2311.08252). The end of the text is looked up in a suffix array; the most frequent
continuations of all its places become a tree of chosen nodes, each with one of the places it was copied from.

Published REST cuts its tree path by path and redraws after a mismatch, which is not lossless under sampling; here the tree
holds the most frequent prefixes, and one draw a node decides.
"""
from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Origin, Scores, State, Target, TreeBuilder
from .counted_suffixes import PastAnswers, walk
from .copying import SuffixCopy, copy_chain
from ...indexes.earlier_answers import Memory
from ...indexes.store import Store


class StoreTree(Drafter):
    """longest, least: tokens of a match; hits: most places looked at. Depth, width and nodes are the budget's.

    matched: how many tokens the match behind the last proposal had.
    """

    matched = 0

    def __init__(self, store: Store, longest: int = 16, least: int = 2, hits: int = 5000):
        self.store, self.longest, self.least, self.hits = store, longest, least, hits

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build = TreeBuilder()
        if budget.gamma > 0:
            n, places = self.draft(build, state, budget)
            if n:
                state.note("retrieved", source=self.store.name, n=n, places=places, nodes=len(build))
        return build.tree()

    def draft(self, build: TreeBuilder, state: State, budget: Budget) -> tuple[int, int]:
        """Fill the tree; returns the length of the match and how many places it has."""
        array = self.store.array
        n, low, high = array.longest(state.tokens, self.longest, self.least)
        found = array.frequent(n, low, high, deep=budget.gamma, nodes=budget.nodes, hits=self.hits, wide=budget.width) if n else []
        at = {-1: -1}
        for place, (token, parent, _, where) in enumerate(found):
            if parent in at:
                node = build.add(token, at[parent], origin=Origin(self.store.name, where, where + 1))
                if token not in state.stop:  # nothing is written after an end token
                    at[place] = node
        self.matched = n
        return n, high - low


class LongerMatch(SuffixCopy):
    """The text so far, past answers, or the store: whichever has the longest match of the end (SAM-Decoding, Hu et al. 2411.10666).

    A match elsewhere counts ``bias`` tokens less: the text itself is the better witness. Otherwise as ``SuffixCopy``.
    """

    def __init__(self, store: Store, least: int = 5, stretch: float = 4.0, bias: int = 5, memory: Memory | None = None):
        super().__init__(least, stretch)
        self.store = StoreTree(store, longest=store.array.depth // 2)
        self.bias, self.memory = bias, memory or Memory()
        self.past = self.memory.table("answers to copy from", lambda: PastAnswers(0, self.memory.room))

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.past.read(self.memory)

    def draft(self, build: TreeBuilder, state: State, budget: Budget) -> None:
        own, _ = self.index.longest()
        least = self.least + self.bias
        known, half, end = max((self.known(half, state) for half in self.past.halves), key=lambda found: found[0])
        array = self.store.store.array
        other, _, _ = array.longest(state.tokens, self.store.longest, least)
        if own >= self.least and own >= max(known, other) - self.bias:
            super().draft(build, state, budget)
        elif known >= max(least, other):
            count = min(budget.gamma, 1 + int(self.stretch * known))
            copied = copy_chain(build, half.text, end, count, state.stop, "answers")
            self.matched = known
            state.note("match", source="answers", start=end - known, end=end, n=known, copied=copied)
        elif other:
            n, places = self.store.draft(build, state, budget)
            self.matched = n
            state.note("retrieved", source=self.store.store.name, n=n, places=places, nodes=len(build))

    def known(self, half, state: State):
        """(length of the longest match of the text's end in a half of the past answers, that half, the match's end there)."""
        place, matched = walk(half, state.tokens[-self.store.store.array.depth:])
        return matched, half, half.first[place]
