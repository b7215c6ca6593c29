"""The ordinary loop for drafters that run the whole target while they draft: each of these passes is counted as a target pass.

Otherwise a method with ten target passes before a round would appear to generate ten tokens in one pass.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..core import Parts, State, Target, play
from ..trace.events import Event, Verified, round_events
from .speculate import emit_rounds, start_run


def count_drafting_passes(parts: Parts, target: Target, state: State) -> Iterator[Event]:
    """Run the standard loop and report the drafter's target passes:
    ``speculate`` with extra events; parts.drafter.passes holds (begin, end, tokens) of the target passes in the last proposal."""
    yield from start_run(parts, target, state)
    yield from emit_rounds(_rounds(parts, target, state), state)


def _rounds(parts: Parts, target: Target, state: State) -> Iterator[Iterable[Event]]:
    while not state.done:
        parts.drafter.passes = []
        yield _with_passes(round_events(play(parts, target, state), state), parts.drafter.passes)


def _with_passes(events: Iterator[Event], passes: list[tuple[float, float, int]]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Verified):
            yield from (Verified(event.round, *one) for one in passes)
        yield event
