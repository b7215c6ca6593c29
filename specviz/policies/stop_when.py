"""Stop drafting at a condition on the token or its distribution. The token that was examined is kept, so
the output stays unbiased.

Also defines the reasoning steps (sentence, line, paragraph) of the step-wise methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core import Budget, Policy, State, Step

MARKS = {"sentence": (b".", b"!", b"?", b"\n"), "line": (b"\n",), "paragraph": (b"\n\n",)}
WIDEST = 2  # bytes of the longest mark, which may span that many tokens


class StopWhen(Policy):
    """A policy that drafts at most ``max_gamma`` tokens; stop(step) is called after each and returns
    whether the draft ends."""

    def __init__(self, max_gamma: int, stop: Callable[[Step], bool]):
        self._budget = Budget(max_gamma, stop=stop)

    def plan(self, state: State) -> Budget:
        return self._budget


class StopAtMark(StopWhen):
    """A policy that drafts one reasoning step: up to the end of a sentence, line or paragraph (``kind``, a
    key of MARKS), or at most ``longest`` tokens. piece(token) -> its bytes."""

    def __init__(self, piece: Callable[[int], bytes], kind: str, longest: int):
        super().__init__(longest, self._stop)
        self.piece, self.marks = piece, MARKS[kind]
        self._drafted: list[int] = []

    def is_complete_step(self, tokens: Sequence[int]) -> bool:
        """Return whether the tokens of a reasoning step end in one of its marks."""
        pieces = [self.piece(token) for token in tokens[-WIDEST:]]
        return bool(pieces[-1]) and b"".join(pieces).endswith(self.marks)

    def _stop(self, step: Step) -> bool:
        self._drafted[step.depth :] = [step.token]
        return self.is_complete_step(self._drafted)
