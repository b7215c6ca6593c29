"""Copy drafts from the context, each token with the position it was copied from.

``NgramDraft`` (ANPD, Ou et al. 2404.08698), ``GramCopy`` (CopySpec, Dumitru et al. 2502.08923),
``SuffixCopy`` (SAM-Decoding, Hu et al. 2411.10666). All nodes are chosen: they have no draft distribution.
"""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Origin, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.ngram_counts import NgramCounts
from ...indexes.suffix_array import PART
from ...indexes.suffix_automaton import NgramIndex, SuffixAutomaton, TextIndex


def copy_chain(
    builder: TreeBuilder, text, position: int, count: int, stop: frozenset[int], source: str = "context"
) -> int:
    """Add a chain of up to ``count`` tokens text[position:] under the root of ``builder``; return their
    number. The chain ends after an end token (``stop``) and before the end of a document (a negative token
    or a datastore's separator). source: name of the text."""
    tokens = []
    for token in text[position : position + count]:
        if token < 0 or token == PART:
            break
        tokens.append(int(token))
        if token in stop:
            break
    builder.chain(tokens, [Origin(source, at, at + 1) for at in range(position, position + len(tokens))])
    return len(tokens)


class ContextIndexDrafter(Drafter):
    """Base class of drafters that copy from the context. It keeps an index of the context, rebuilt for
    every run and extended after every round; a subclass implements ``draft``.

    matched: number of context tokens that matched before the last proposal.
    """

    matched = 0

    def __init__(self, index: TextIndex):
        self.index = index

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.index.clear()
        self.index.extend(state.tokens)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        if budget.gamma > 0:
            self.index.follow(state.tokens)
            self.draft(builder, state, budget)
        return builder.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.index.extend(state.tokens)

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        """Add the draft's nodes to ``builder``. The index already holds state.tokens."""


class NgramDraft(ContextIndexDrafter):
    """Drafter of a chain, token by token: the most frequent successor of the last n - 1 tokens, with the
    largest n for which they occurred before (ANPD, Ou et al. 2404.08698). longest, min_match: largest and
    smallest n.
    """

    index: NgramCounts

    def __init__(self, longest: int = 5, min_match: int = 2):
        super().__init__(NgramCounts(longest))
        self.longest, self.min_match = longest, min_match

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        context, orders = list(state.tokens[1 - self.longest :]), []
        while len(builder) < budget.gamma:
            token, n, position = self.index.best(context)
            if n < self.min_match:
                break
            builder.add(token, len(builder) - 1, origin=Origin("context", position, position + 1))
            orders.append(n)
            if token in state.stop:
                break
            context = [*context, token][1 - self.longest :]
        if orders:
            self.matched = orders[0] - 1
            state.note("backoff", orders=orders, longest=self.longest)


class GramCopy(ContextIndexDrafter):
    """Drafter that copies the continuation of the first (``latest``: the latest) earlier occurrence of the
    last ``gram`` tokens (CopySpec, Dumitru et al. 2502.08923)."""

    index: NgramIndex

    def __init__(self, gram: int = 3, latest: bool = False):
        super().__init__(NgramIndex(gram))
        self.gram, self.latest = gram, latest

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        end = self.index.latest() if self.latest else self.index.earliest()
        if end:
            self.matched = self.gram
            copied = copy_chain(builder, state.tokens, end, budget.gamma, state.stop)
            state.note("match", start=end - self.gram, end=end, n=self.gram, copied=copied)


class SuffixCopy(ContextIndexDrafter):
    """Drafter that copies the continuation of the longest suffix of the context that occurred before, if it
    has at least ``min_match`` tokens (SAM-Decoding, Hu et al. 2411.10666). The draft has 1 + stretch *
    (match length) tokens.
    """

    index: SuffixAutomaton

    def __init__(self, min_match: int = 5, stretch: float = 4.0):
        super().__init__(SuffixAutomaton())
        self.min_match, self.stretch = min_match, stretch

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        n, end = self.index.longest()
        count = min(budget.gamma, 1 + int(self.stretch * n))
        shorter, there = self.index.longest(count)
        if shorter >= self.min_match:  # a shorter match with more text after it
            n, end = shorter, there
        if n >= self.min_match and n:
            self.matched = n
            copied = copy_chain(builder, state.tokens, end, count, state.stop)
            state.note("match", start=end - n, end=end, n=n, copied=copied)
