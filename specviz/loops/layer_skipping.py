"""Layer-skipping decoding without verification: the prompt runs through all layers, each generated token
through some of them.

Unified Layer Skipping (Liu et al. 2404.06954) uses the same layers for every token; SkipDecode (Del Corro
et al. 2307.02628) uses fewer and fewer. A token has keys and values only in the layers it ran through, so
later tokens may only skip more layers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from ..core import CapableTarget, Parts, State, play
from ..trace.events import Event, round_events
from .speculate import emit_rounds, start_run

Skipped = Callable[
    [int], frozenset[int]
]  # tokens generated so far -> skipped sublayers (2i, 2i + 1: those of layer i)


class LayerSkippingLoop:
    """Decoding loop on a view of the target that skips sublayers. skipped: function from the number of
    generated tokens to the skipped sublayers (2i: attention of layer i, 2i + 1: its feed-forward); it must
    never use a sublayer again that was skipped before."""

    def __init__(self, skipped: Skipped):
        self.skipped = skipped

    def __call__(self, parts: Parts, target: CapableTarget, state: State) -> Generator[Event]:
        yield from start_run(parts, target, state)
        yield from emit_rounds(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: CapableTarget, state: State) -> Generator[Iterable[Event]]:
        view = target.skipping(self.skipped(0))
        try:
            view.capture(parts.hidden_states)
            view.sync(state.tokens)
            while not state.done:
                view.skip = self.skipped(len(state.tokens) - state.start)
                state.note("layers", count=target.layers, skipped=sorted(view.skip), at=len(state.tokens))
                yield round_events(play(parts, view, state), state)
        finally:
            view.close()
