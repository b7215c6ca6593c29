"""Draft, verify, commit, again: the loop of speculative decoding (Leviathan et al. 2211.17192; Chen et al. 2302.01318).

It is a generator and the only version of the loop: a page, a benchmark and a test all walk the same one. The engine's clock
stands still while an event is built or looked at.
"""
from __future__ import annotations

from contextlib import closing
from typing import Generator, Iterable, Iterator

from ..trace.events import Event, Prefilled, tell
from ..core import Parts, Scores, State, Target, open_run, play


def opening(parts: Parts, target: Target, state: State) -> Generator[Event, None, Scores]:
    """Prefill the prompt and start the parts; the prefill's Scores are what ``yield from`` gives back."""
    t0 = state.clock.now()
    prefill = open_run(parts, target, state)
    state.clock.pause()
    yield Prefilled(t0, state.clock.now(), prefill.num_computed or len(prefill.logits))
    state.clock.resume()
    return prefill


def told(rounds: Iterator[Iterable[Event]], state: State) -> Iterator[Event]:
    """The events of rounds that a loop plays one after another. Each item is a round just played, as events that are made when
    they are asked for: the clock stands still until all of them have been looked at."""
    with closing(rounds):
        for events in rounds:
            state.clock.pause()
            yield from events
            state.clock.resume()


def speculate(parts: Parts, target: Target, state: State) -> Iterator[Event]:
    """Rounds until the end token or the limit; the prompt is in state.tokens."""
    yield from opening(parts, target, state)
    yield from told(ordinary(parts, target, state), state)


def ordinary(parts: Parts, target: Target, state: State) -> Iterator[Iterable[Event]]:
    """The ordinary rounds, for ``told``."""
    while not state.done:
        yield tell(play(parts, target, state), state)
