"""The ordinary loop for drafters that run the whole target while they draft: each such pass is told, and counted, as a pass.

Without it a method that asks the target ten times before a round would seem to write ten tokens in one pass.
"""
from __future__ import annotations

from typing import Iterator

from ..trace.events import Event, Verified, tell
from ..core import Parts, State, Target, play
from .speculate import opening


def own_passes(parts: Parts, target: Target, state: State) -> Iterator[Event]:
    """``speculate``; parts.drafter.passes holds (begin, end, rows) of the target's passes in the last proposal."""
    yield from opening(parts, target, state)
    while not state.done:
        parts.drafter.passes = []
        outcome = play(parts, target, state)
        state.clock.pause()
        for event in tell(outcome, state):
            if isinstance(event, Verified):
                yield from (Verified(event.round, *one) for one in parts.drafter.passes)
            yield event
        state.clock.resume()
