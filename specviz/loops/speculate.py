"""The speculative decoding loop: draft, verify, commit (Leviathan et al. 2211.17192; Chen et al. 2302.01318).

It is a generator of events, and there is only one: the page, the benchmark and the tests iterate over it.
The clock is paused while an event is built or consumed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing

from ..core import Parts, Scores, State, Target, open_run, play
from ..trace.events import Event, Prefilled, round_events


def start_run(parts: Parts, target: Target, state: State) -> Generator[Event, None, Scores]:
    """Prefill the prompt and start the parts, yielding a Prefilled event; return the Scores of the
    prefill."""
    t0 = state.clock.now()
    prefill = open_run(parts, target, state)
    state.clock.pause()
    yield Prefilled(t0, state.clock.now(), prefill.num_computed or len(prefill.logits))
    state.clock.resume()
    return prefill


def emit_rounds(rounds: Generator[Iterable[Event]], state: State) -> Generator[Event]:
    """Yield the events of all rounds. Each item of ``rounds`` is the lazily built events of a round that
    has just run; the clock is paused until all of them are consumed."""
    with closing(rounds):
        for events in rounds:
            state.clock.pause()
            yield from events
            state.clock.resume()


def speculate(parts: Parts, target: Target, state: State) -> Generator[Event]:
    """Run rounds until the end token or the limit, yielding events; state.tokens holds the prompt."""
    yield from start_run(parts, target, state)
    yield from emit_rounds(speculative_rounds(parts, target, state), state)


def speculative_rounds(parts: Parts, target: Target, state: State) -> Generator[Iterable[Event]]:
    """Run ordinary rounds until the end; yield the events of each, for ``emit_rounds``."""
    while not state.done:
        yield round_events(play(parts, target, state), state)
