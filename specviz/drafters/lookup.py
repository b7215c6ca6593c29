"""Prompt lookup: copy what followed an earlier occurrence of the last few tokens (Saxena 2023, prompt-lookup-decoding; the
same rule in transformers' PromptLookupCandidateGenerator)."""
from __future__ import annotations

from ..core import Budget, Drafter, DraftTree, Origin, State, TreeBuilder


class PromptLookup(Drafter):
    """longest: most tokens of the end to match; latest: take the last occurrence instead of the first."""

    def __init__(self, longest: int = 3, latest: bool = False):
        self.longest, self.latest = longest, latest

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build = TreeBuilder()
        end, size = find_match(state.tokens, self.longest, self.latest) if budget.gamma > 0 else (0, 0)
        for i in range(end, min(end + budget.gamma, len(state.tokens)) if size else end):
            build.add(state.tokens[i], len(build) - 1, origin=Origin("context", i, i + 1))
            if state.tokens[i] in state.stop:  # nothing is written after an end token
                break
        if size:
            state.note("match", start=end - size, end=end, n=size, copied=len(build))
        return build.tree()


def find_match(tokens: list[int], longest: int, latest: bool = False) -> tuple[int, int]:
    """(end, n): tokens[end-n:end] equals the last n tokens, n as large as possible up to ``longest``, and something follows.

    Of equally long matches the first, or the last where ``latest``. (0, 0) when the last token occurred nowhere before.
    """
    last, at, found, size = len(tokens) - 1, -1, 0, 0
    for _ in range(tokens.count(tokens[-1]) - 1):
        at = tokens.index(tokens[-1], at + 1)
        n = 1
        while n < longest and n <= at and tokens[at - n] == tokens[last - n]:
            n += 1
        if n > size or (latest and n == size):
            found, size = at + 1, n
    return found, size
