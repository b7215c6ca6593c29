"""The ordinary loop for drafters that run the whole target while they draft: each such pass is told, and counted, as a pass.

Without it a method that asks the target ten times before a round would seem to write ten tokens in one pass.
"""
from __future__ import annotations

from typing import Iterable, Iterator

from ..trace.events import Event, Verified, tell
from ..core import Parts, State, Target, play
from .speculate import opening, told


def own_passes(parts: Parts, target: Target, state: State) -> Iterator[Event]:
    """``speculate``; parts.drafter.passes holds (begin, end, rows) of the target's passes in the last proposal."""
    yield from opening(parts, target, state)
    yield from told(_rounds(parts, target, state), state)


def _rounds(parts: Parts, target: Target, state: State) -> Iterator[Iterable[Event]]:
    while not state.done:
        parts.drafter.passes = []
        yield _with_passes(tell(play(parts, target, state), state), parts.drafter.passes)


def _with_passes(events: Iterator[Event], passes: list[tuple[float, float, int]]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Verified):
            yield from (Verified(event.round, *one) for one in passes)
        yield event
