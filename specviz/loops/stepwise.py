"""Reasoning step by step: the small model writes a step, the target grades it, and writes it anew where the grade is too low
(SpecReason, Pan et al. 2504.07891). A step that passes is kept as it is, whatever the target would have written."""
from __future__ import annotations

from typing import Callable, Iterable, Iterator, Sequence

from ..trace.events import Event, tell
from ..core import Parts, State, Target, play
from .speculate import opening, told


class Stepwise:
    """A round drafts one step and grades it; after a refusal plain rounds of the target, ``alone``, write up to the step's end.

    ends(tokens): whether a step that begins with these tokens ends with the last of them; longest: most tokens of a step; first:
    steps that the target writes by itself before the small model may.
    """

    def __init__(self, alone: Parts, ends: Callable[[Sequence[int]], bool], longest: int, first: int = 0):
        self.alone, self.ends, self.longest, self.first = alone, ends, longest, first

    def __call__(self, parts: Parts, target: Target, state: State) -> Iterator[Event]:
        yield from opening(parts, target, state)
        yield from told(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: Target, state: State) -> Iterator[Iterable[Event]]:
        steps = 0
        while not state.done:
            written, passed = 0, False
            while not state.done and not (passed or written >= self.longest or (written and self.ends(state.tokens[-written:]))):
                who = parts if not written and steps >= self.first else self.alone
                outcome = play(who, target, state)
                passed, written = outcome.verdict.kind == "accepted", written + len(outcome.committed)
                state.note("step", step=steps, writer="small" if passed else "large", tokens=list(outcome.committed))
                yield tell(outcome, state)
            steps += 1
