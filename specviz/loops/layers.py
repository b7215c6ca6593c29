"""Decoding with a part of the layers, unchecked: the prompt goes through all of them, every further token through some.

Unified Layer Skipping (Liu et al. 2404.06954) keeps the same layers for every token; SkipDecode (Del Corro et al. 2307.02628)
keeps fewer and fewer. A token's keys and values exist for the layers it went through, so later tokens may only leave out more.
"""
from __future__ import annotations

from typing import Callable, Iterable, Iterator

from ..trace.events import Event, tell
from ..core import Parts, State, Target, play
from .speculate import opening, told

Skipped = Callable[[int], frozenset[int]]  # tokens written so far -> sublayers left out (2i, 2i + 1: those of layer i)


class FewerLayers:
    """The ordinary loop on a view of the target. ``skipped`` must never give back a sublayer that it took away."""

    def __init__(self, skipped: Skipped):
        self.skipped = skipped

    def __call__(self, parts: Parts, target: Target, state: State) -> Iterator[Event]:
        yield from opening(parts, target, state)
        yield from told(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: Target, state: State) -> Iterator[Iterable[Event]]:
        view = target.skipping(self.skipped(0))
        try:
            view.capture(parts.hidden_states)
            view.sync(state.tokens)
            while not state.done:
                view.skip = self.skipped(len(state.tokens) - state.start)
                state.note("layers", count=target.layers, skipped=sorted(view.skip), at=len(state.tokens))
                yield tell(play(parts, view, state), state)
        finally:
            view.close()
