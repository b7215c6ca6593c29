"""Draft, verify, commit, again: the loop of speculative decoding (Leviathan et al. 2211.17192; Chen et al. 2302.01318).

It is a generator and the only version of the loop: a page, a benchmark and a test all walk the same one. The engine's clock
stands still while an event is built or looked at.
"""
from __future__ import annotations

from typing import Generator, Iterator

from ..trace.events import Event, Prefilled, tell
from ..core import Parts, Scores, State, Target, open_run, play


def opening(parts: Parts, target: Target, state: State) -> Generator[Event, None, Scores]:
    """Prefill the prompt and start the parts; the prefill's Scores are what ``yield from`` gives back."""
    t0 = state.clock.now()
    prefill = open_run(parts, target, state)
    state.clock.pause()
    yield Prefilled(t0, state.clock.now(), prefill.fed or len(prefill.logits))
    state.clock.resume()
    return prefill


def speculate(parts: Parts, target: Target, state: State) -> Iterator[Event]:
    """Rounds until the end token or the limit; the prompt is in state.tokens."""
    yield from opening(parts, target, state)
    while not state.done:
        outcome = play(parts, target, state)
        state.clock.pause()
        yield from tell(outcome, state)
        state.clock.resume()
