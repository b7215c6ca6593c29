"""Stop drafting at a condition on the token or its distribution. The token that was examined is kept, so the output stays unbiased.

Also defines the reasoning steps (sentence, line, paragraph) of the step-wise methods."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core import Budget, Policy, State, Step

MARKS = {"sentence": (b".", b"!", b"?", b"\n"), "line": (b"\n",), "paragraph": (b"\n\n",)}
WIDEST = 2  # bytes of the longest mark, which may span that many tokens


class StopWhen(Policy):
    """Draft at most ``most`` tokens; ``stop`` is called after each and may end the draft."""

    def __init__(self, most: int, stop: Callable[[Step], bool]):
        self._budget = Budget(most, stop=stop)

    def plan(self, state: State) -> Budget:
        return self._budget


class StopAtMark(StopWhen):
    """Draft one reasoning step: up to a mark of this kind (sentence, line, paragraph), or ``longest`` tokens.
    piece(token) -> its bytes."""

    def __init__(self, piece: Callable[[int], bytes], kind: str, longest: int):
        super().__init__(longest, self._stop)
        self.piece, self.marks = piece, MARKS[kind]
        self._drafted: list[int] = []

    def ends(self, tokens: Sequence[int]) -> bool:
        """Return whether a step consisting of these tokens is complete."""
        pieces = [self.piece(token) for token in tokens[-WIDEST:]]
        return bool(pieces[-1]) and b"".join(pieces).endswith(self.marks)

    def _stop(self, step: Step) -> bool:
        self._drafted[step.depth:] = [step.token]
        return self.ends(self._drafted)
