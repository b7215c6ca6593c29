"""The n-gram lookups of llama.cpp, which copy long continuations of one long key. ``NgramMap``: simple,
map-k and map-k4v; ``NgramPool``: mod, a hash table shared by the visitor's answers.
"""

from __future__ import annotations

from collections import Counter

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.earlier_answers import Memory
from ...indexes.hash_pool import HashPool
from ...indexes.suffix_automaton import NgramIndex
from .copying import ContextIndexDrafter, copy_chain

VALUES = 4  # continuations per key
LATEST = 64  # positions examined
CLEAR = 2  # required frequency ratio of the best to the next


class NgramMap(ContextIndexDrafter):
    """Drafter that copies the continuation of the last ``key`` tokens if they occurred at least
    ``min_count`` times before (llama.cpp's ngram-simple, ngram-map-k and ngram-map-k4v).

    counted: copy the most frequent of up to four continuations if it is at least twice as frequent as the
    next one, else draft nothing; otherwise copy the latest continuation.
    """

    index: NgramIndex

    def __init__(self, key: int = 12, min_count: int = 1, counted: bool = False):
        super().__init__(NgramIndex(key))
        self.key = key
        self.min_count = min_count
        self.counted = counted

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        places = self.index.before()
        if not places or len(places) < self.min_count:
            return
        end = self.dominant_continuation(places[-LATEST:], budget.gamma) if self.counted else places[-1]
        if end:
            self.matched = self.key
            copied = copy_chain(builder, state.tokens, end, budget.gamma, state.stop)
            state.note("match", start=end - self.key, end=end, n=self.key, copied=copied)

    def dominant_continuation(self, places: list[int], size: int) -> int:
        """Return the latest of the given positions that is followed by the most frequent continuation of
        ``size`` tokens, if that is at least CLEAR times as frequent as the next one; else 0."""
        text, values = self.index.text, Counter()
        latest: dict[tuple[int, ...], int] = {}
        for end in places:
            value = tuple(text[end : end + size])
            if value in values or len(values) < VALUES:
                values[value] += 1
                latest[value] = end
        best, *others = values.most_common(2)
        return latest[best[0]] if not others or best[1] >= CLEAR * others[0][1] else 0


class NgramPool(Drafter):
    """Drafter of a chain from a hash table of n-gram successors, filled from all texts of a session
    (llama.cpp's ngram-mod).

    memory: the session's memory, which holds the table; key: length of an n-gram, in tokens; min_draft:
    shorter drafts are not proposed. matched: equal to ``key``.
    """

    def __init__(self, memory: Memory, key: int = 24, min_draft: int = 1):
        self.pool = memory.table(("n-gram pool", key), lambda: HashPool(key))
        self.min_draft = min_draft
        self.matched = key
        self.new: int | None = None  # where the tokens begin that are not in the pool yet

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.pool.add(state.tokens)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if self.new is not None:
            self.pool.add(state.tokens, self.new)
            self.new = None
        found = self.pool.follow(state.tokens, budget.gamma, state.stop)
        if len(found) < min(self.min_draft, budget.gamma):
            return DraftTree()
        if found:
            state.note("pool", keys=self.pool.used, nodes=len(found))
        return DraftTree.chain(found)

    def observe(self, state: State, outcome: Outcome) -> None:
        if (
            self.new is None
        ):  # added with the next proposal: a stop string may still take the last round's tokens back
            self.new = len(state.tokens) - len(outcome.committed)
