"""Prompt lookup: copy what followed an earlier occurrence of the last few tokens (Saxena 2023,
prompt-lookup-decoding).

The rule is that of transformers' PromptLookupCandidateGenerator: find the first occurrence of the longest
suffix of up to n tokens and copy its continuation. transformers scans the context; here hash tables of all
n-grams make the cost of a round constant.
"""

from __future__ import annotations

from ...core import Budget, State, TreeBuilder
from ...indexes.suffix_automaton import NgramIndexes
from .copying import ContextIndexDrafter, copy_chain


class PromptLookup(ContextIndexDrafter):
    """Drafter that copies the continuation of the longest suffix of the context, of up to ``longest``
    tokens, that occurred before. latest: copy after its last earlier occurrence instead of its first."""

    index: NgramIndexes

    def __init__(self, longest: int = 3, latest: bool = False):
        super().__init__(NgramIndexes(longest))
        self.latest = latest

    def draft(self, builder: TreeBuilder, state: State, budget: Budget) -> None:
        end, self.matched = self.index.match(self.latest)
        if self.matched:
            copied = copy_chain(builder, state.tokens, end, budget.gamma, state.stop)
            state.note("match", start=end - self.matched, end=end, n=self.matched, copied=copied)
