"""Drafts copied from the text so far, each token with the place it was copied from.

``NgramDraft`` (ANPD, Ou et al. 2404.08698), ``GramCopy`` (CopySpec, Dumitru et al. 2502.08923), ``SuffixCopy`` (SAM-Decoding,
Hu et al. 2411.10666). Nothing is drawn, so every node is a chosen one.
"""
from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Origin, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.ngram_counts import NgramCounts
from ...indexes.suffix_array import PART
from ...indexes.suffix_automaton import GramIndex, SuffixAutomaton, Text


def copy_chain(build: TreeBuilder, text, place: int, count: int, stop: frozenset[int], source: str = "context") -> int:
    """Add up to ``count`` tokens text[place:] below each other at the root, none after an end token or the end of a document (a
    token below 0, or a store's mark); returns how many."""
    tokens = []
    for token in text[place:place + count]:
        if token < 0 or token == PART:
            break
        tokens.append(int(token))
        if token in stop:
            break
    build.chain(tokens, [Origin(source, at, at + 1) for at in range(place, place + len(tokens))])
    return len(tokens)


class Following(Drafter):
    """Keeps an index of the text so far: rebuilt with every run, extended after every round, taken back where need be.

    matched: how many tokens the match behind the last proposal had.
    """

    matched = 0

    def __init__(self, index: Text):
        self.index = index

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.index.clear()
        self.index.settle(state.tokens)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build = TreeBuilder()
        if budget.gamma > 0:
            self.index.follow(state.tokens)
            self.draft(build, state, budget)
        return build.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.index.settle(state.tokens)

    def draft(self, build: TreeBuilder, state: State, budget: Budget) -> None:
        """Add nodes; the index holds state.tokens."""


class NgramDraft(Following):
    """One token at a time: the most frequent successor of the longest n-gram that is known, backing off to shorter ones.

    longest: n of the longest n-grams; least: n of the shortest that may draft.
    """

    def __init__(self, longest: int = 5, least: int = 2):
        super().__init__(NgramCounts(longest))
        self.longest, self.least = longest, least

    def draft(self, build: TreeBuilder, state: State, budget: Budget) -> None:
        context, orders = list(state.tokens[1 - self.longest:]), []
        while len(build) < budget.gamma:
            token, n, place = self.index.best(context)
            if n < self.least:
                break
            build.add(token, len(build) - 1, origin=Origin("context", place, place + 1))
            orders.append(n)
            if token in state.stop:
                break
            context = [*context, token][1 - self.longest:]
        if orders:
            self.matched = orders[0] - 1
            state.note("backoff", orders=orders, longest=self.longest)


class GramCopy(Following):
    """What followed an earlier occurrence of the last ``gram`` tokens: the first one, or the latest."""

    def __init__(self, gram: int = 3, latest: bool = False):
        super().__init__(GramIndex(gram))
        self.gram, self.latest = gram, latest

    def draft(self, build: TreeBuilder, state: State, budget: Budget) -> None:
        end = self.index.latest() if self.latest else self.index.earliest()
        if end:
            self.matched = self.gram
            copied = copy_chain(build, state.tokens, end, budget.gamma, state.stop)
            state.note("match", start=end - self.gram, end=end, n=self.gram, copied=copied)


class SuffixCopy(Following):
    """What followed the longest match of the end of the text, if it is at least ``least`` tokens long.

    stretch: tokens drafted for each token of the match, beside one; a longer match may go further.
    """

    def __init__(self, least: int = 5, stretch: float = 4.0):
        super().__init__(SuffixAutomaton())
        self.least, self.stretch = least, stretch

    def draft(self, build: TreeBuilder, state: State, budget: Budget) -> None:
        n, end = self.index.longest()
        count = min(budget.gamma, 1 + int(self.stretch * n))
        shorter, there = self.index.longest(count)
        if shorter >= self.least:  # a shorter match with more text after it
            n, end = shorter, there
        if n >= self.least and n:
            self.matched = n
            copied = copy_chain(build, state.tokens, end, count, state.stop)
            state.note("match", start=end - n, end=end, n=n, copied=copied)
