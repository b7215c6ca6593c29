"""A batch of runs that join and leave at any time. When a run needs its next outcome, a round is run for
all runs of the batch, in shared forward passes.

One thread advances the runs in turn. Each has its own clock, random streams and KV cache, so its answer
does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace

from ..core import Outcome, Parts, State, Target
from ..trace.events import Event, round_events
from .batched import Batch, Request
from .speculate import emit_rounds, start_run


class BatchBroken(RuntimeError):
    """Error: a round of the batch failed, so that none of its runs can go on."""


class ContinuousBatch:
    """The decoding loop of runs that share forward passes; call it once per run. largest: most requests in
    a round so far."""

    def __init__(self):
        self.largest = 0
        self._batch, self._failure = Batch(), ""
        self._outcomes: dict[
            Request, tuple[Outcome, list]
        ] = {}  # played already, not taken yet; with the round's notes

    def __call__(self, parts: Parts, target: Target, state: State) -> Generator[Event]:
        yield from start_run(parts, target, state)
        request = self._batch.take(parts, target, state)
        try:
            yield from emit_rounds(self._rounds(request), state)
        finally:
            self._batch.leave(request)
            self._outcomes.pop(request, None)

    def _rounds(self, request: Request) -> Generator[Iterable[Event]]:
        while request in self._outcomes or not request.state.done:
            if request not in self._outcomes:
                self._play(request)
            outcome, notes = self._outcomes.pop(request)
            request.state.notes[:] = notes
            yield round_events(outcome, request.state)

    def _play(self, asking: Request) -> None:
        """Play a round for all requests that have no outcome yet. The other requests' clocks run meanwhile,
        too."""
        if self._failure:
            raise BatchBroken(self._failure)
        live = [
            request
            for request in self._batch.requests
            if request not in self._outcomes and not request.state.done
        ]
        for request in live:
            request.state.clock.resume()
            request.state.notes.clear()  # those of the round before are emitted
        began = {request: request.state.clock.now() for request in live}
        try:
            outcomes = self._batch.round(live)
        except Exception as error:
            self._failure = f"another request of the batch failed: {error}"
            raise
        finally:
            for request in live:
                if request is not asking:
                    request.state.clock.pause()
        self.largest = max(self.largest, len(outcomes))
        for request, outcome in outcomes:
            self._outcomes[request] = replace(outcome, began=began[request]), [*request.state.notes]
            request.state.notes.clear()
