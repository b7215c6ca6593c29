"""Draft until a token, or the law it was drawn from, says stop. The token it looked at is kept, so the law stays what it is.

Also what the methods that write step by step take a step to be."""
from __future__ import annotations

from typing import Callable, Sequence

from ..core import Budget, Policy, State, Step


MARKS = {"sentence": (b".", b"!", b"?", b"\n"), "line": (b"\n",), "paragraph": (b"\n\n",)}
WIDEST = 2  # bytes of the longest mark: so many tokens may share one


class Until(Policy):
    """most: longest draft; stop: asked after each token."""

    def __init__(self, most: int, stop: Callable[[Step], bool]):
        self._budget = Budget(most, stop=stop)

    def plan(self, state: State) -> Budget:
        return self._budget


class UntilMark(Until):
    """A step of the answer: until one of a kind's marks, or ``longest`` tokens. piece(token) -> its text."""

    def __init__(self, piece: Callable[[int], bytes], kind: str, longest: int):
        super().__init__(longest, self._stop)
        self.piece, self.marks = piece, MARKS[kind]
        self._drafted: list[int] = []

    def ends(self, tokens: Sequence[int]) -> bool:
        """Whether a step that begins with these tokens ends with the last of them."""
        pieces = [self.piece(token) for token in tokens[-WIDEST:]]
        return bool(pieces[-1]) and b"".join(pieces).endswith(self.marks)

    def _stop(self, step: Step) -> bool:
        self._drafted[step.depth:] = [step.token]
        return self.ends(self._drafted)
