"""Copy the draft from the prompt: input-guided aggressive decoding (Ge et al. 2205.10350)."""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from .copying import copy_chain


class InputCopy(Drafter):
    """Drafter that copies the prompt while the output follows it (Ge et al. 2205.10350). After a difference
    it continues after the prompt's only occurrence of the shortest suffix of the output that occurs there
    exactly once.

    longest: maximum length of that suffix; from_start: start copying at the prompt's first token.
    """

    def __init__(self, longest: int = 3, from_start: bool = False):
        self.longest, self.from_start = longest, from_start

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.source = list(state.tokens[: state.start])
        self.ends: dict[
            tuple[int, ...], int
        ] = {}  # n-gram of the prompt -> its end position, 0 if it is not unique
        for end in range(1, len(self.source) + 1):
            for n in range(1, min(self.longest, end) + 1):
                piece = tuple(self.source[end - n : end])
                self.ends[piece] = 0 if piece in self.ends else end
        self.position, self.at = (0 if self.from_start else None), len(self.source)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        follows = self.position is not None and self.at == len(state.tokens)
        position, n = (self.position, 0) if follows else self.find_match(state.tokens)
        if position is not None and budget.gamma > 0:
            copied = copy_chain(builder, self.source, position, budget.gamma, state.stop)
            state.note("match", start=position - n, end=position, n=n, copied=copied)
        return builder.tree()

    def find_match(self, tokens: list[int]) -> tuple[int | None, int]:
        """Return the prompt position to copy from and the length of the matching suffix of ``tokens``;
        (None, 0) if no suffix occurs exactly once in the prompt."""
        for n in range(1, min(self.longest, len(tokens)) + 1):
            end = self.ends.get(tuple(tokens[-n:]))
            if end is None:
                break  # a longer n-gram cannot occur either
            if end:
                return (
                    (end, n) if end < len(self.source) else (None, 0)
                )  # nothing follows the end of the prompt
        return None, 0

    def observe(self, state: State, outcome: Outcome) -> None:
        size = len(outcome.committed)
        before = len(state.tokens) - size
        position = (
            self.position
            if self.position is not None and self.at == before
            else self.find_match(state.tokens[:before])[0]
        )
        same = position is not None and self.source[position : position + size] == list(outcome.committed)
        self.position = (
            position + size if position is not None and same and position + size < len(self.source) else None
        )
        self.at = len(state.tokens)
