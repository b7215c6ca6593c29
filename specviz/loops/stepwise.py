"""Step-level speculative reasoning: the small model drafts a step, the target scores it and rewrites it if
the score is too low (SpecReason, Pan et al. 2504.07891). An accepted step is kept unchanged, so the output
is not the target's."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

from ..core import Parts, State, Target, play
from ..trace.events import Event, round_events
from .speculate import emit_rounds, start_run


class Stepwise:
    """Decoding loop that drafts one reasoning step per round and scores it; after a rejection the parts
    ``target_parts`` (plain decoding) write the step.

    is_step_end(tokens): whether these tokens form a complete step; longest: maximum tokens of a step;
    first: number of steps written by the target before the small model is used.
    """

    def __init__(
        self, target_parts: Parts, is_step_end: Callable[[Sequence[int]], bool], longest: int, first: int = 0
    ):
        self.target_parts = target_parts
        self.is_step_end = is_step_end
        self.longest = longest
        self.first = first

    def __call__(self, parts: Parts, target: Target, state: State) -> Generator[Event]:
        yield from start_run(parts, target, state)
        yield from emit_rounds(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: Target, state: State) -> Generator[Iterable[Event]]:
        steps = 0
        while not state.done:
            written, passed = 0, False
            while not state.done and not (
                passed or written >= self.longest or (written and self.is_step_end(state.tokens[-written:]))
            ):
                who = parts if not written and steps >= self.first else self.target_parts
                outcome = play(who, target, state)
                passed, written = outcome.verdict.kind == "accepted", written + len(outcome.committed)
                state.note(
                    "step", step=steps, writer="small" if passed else "large", tokens=list(outcome.committed)
                )
                yield round_events(outcome, state)
            steps += 1
