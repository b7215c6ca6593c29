"""Input-guided aggressive decoding: the input itself is the draft (Ge et al. 2205.10350)."""
from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from .copying import copy_chain


class InputCopy(Drafter):
    """Copies the prompt from a place on, as long as the output follows it. After a difference the place is found again: where the
    last token stands in the prompt, or the last two, or ``longest``, whichever is there exactly once.

    from_start: begin to copy at the prompt's first token, before anything is written.
    """

    def __init__(self, longest: int = 3, from_start: bool = False):
        self.longest, self.from_start = longest, from_start

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.source = list(state.tokens[:state.start])
        self.ends: dict[tuple[int, ...], int] = {}  # piece of the prompt -> where it ends, 0 where there are several
        for end in range(1, len(self.source) + 1):
            for n in range(1, min(self.longest, end) + 1):
                piece = tuple(self.source[end - n:end])
                self.ends[piece] = 0 if piece in self.ends else end
        self.place, self.at = (0 if self.from_start else None), len(self.source)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build = TreeBuilder()
        follows = self.place is not None and self.at == len(state.tokens)
        place, n = (self.place, 0) if follows else self.found(state.tokens)
        if place is not None and budget.gamma > 0:
            copied = copy_chain(build, self.source, place, budget.gamma, state.stop)
            state.note("match", start=place - n, end=place, n=n, copied=copied)
        return build.tree()

    def found(self, tokens: list[int]) -> tuple[int | None, int]:
        """Where to go on copying, and how many last tokens led there; None while they tell nothing."""
        for n in range(1, min(self.longest, len(tokens)) + 1):
            end = self.ends.get(tuple(tokens[-n:]))
            if end is None:
                break  # a longer piece is not there either
            if end:
                return (end, n) if end < len(self.source) else (None, 0)  # behind the input's end nothing is left to copy
        return None, 0

    def observe(self, state: State, outcome: Outcome) -> None:
        size = len(outcome.committed)
        before = len(state.tokens) - size
        place = self.place if self.place is not None and self.at == before else self.found(state.tokens[:before])[0]
        same = place is not None and self.source[place:place + size] == list(outcome.committed)
        self.place, self.at = (place + size if same and place + size < len(self.source) else None), len(state.tokens)
