"""Prompt lookup: copy what followed an earlier occurrence of the last few tokens (Saxena 2023, prompt-lookup-decoding).

The rule is that of transformers' PromptLookupCandidateGenerator: of the last n tokens, n as large as possible, the first place
where they stood, and what follows there up to the end of the text. The first one scans the text for it; here the places of
every piece of text are kept in tables, so that a round costs the same however long the text is.
"""
from __future__ import annotations

from ...core import Budget, State, TreeBuilder
from .copying import Following, copy_chain
from ...indexes.suffix_automaton import Grams


class PromptLookup(Following):
    """longest: most tokens of the end to match; latest: take the last occurrence instead of the first."""

    def __init__(self, longest: int = 3, latest: bool = False):
        super().__init__(Grams(longest))
        self.latest = latest

    def draft(self, build: TreeBuilder, state: State, budget: Budget) -> None:
        end, self.matched = self.index.match(self.latest)
        if self.matched:
            copied = copy_chain(build, state.tokens, end, budget.gamma, state.stop)
            state.note("match", start=end - self.matched, end=end, n=self.matched, copied=copied)
