"""The ordinary loop, for drafters that run the whole target while they draft: each of these passes is
counted as a target pass.

Without that, a method with ten target passes before a round would appear to generate ten tokens in one pass.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Protocol, cast

from ..core import Parts, State, Target, play
from ..trace.events import Event, Verified, round_events
from .speculate import emit_rounds, start_run


class RecordsPasses(Protocol):
    """A drafter that runs the whole target while it drafts and records these passes. passes: (begin, end,
    number of rows) of each target pass of the last proposal."""

    passes: list[tuple[float, float, int]]


def count_drafting_passes(parts: Parts, target: Target, state: State) -> Generator[Event]:
    """Run the ordinary loop ``speculate``, with an additional Verified event for each target pass that the
    drafter ran (``RecordsPasses``)."""
    yield from start_run(parts, target, state)
    yield from emit_rounds(_rounds(parts, target, state), state)


def _rounds(parts: Parts, target: Target, state: State) -> Generator[Iterable[Event]]:
    drafter = cast(RecordsPasses, parts.drafter)
    while not state.done:
        drafter.passes = []
        yield _with_passes(round_events(play(parts, target, state), state), drafter.passes)


def _with_passes(events: Iterable[Event], passes: list[tuple[float, float, int]]) -> Generator[Event]:
    for event in events:
        if isinstance(event, Verified):
            yield from (Verified(event.round, *one) for one in passes)
        yield event
