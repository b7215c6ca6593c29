"""Merge server lanes into a race of local lanes. Local lanes take turns; a server runs on its own, so each
stream is read by a thread, and its times include no waiting for other lanes.

A server on this machine shares the processor with the local lanes and cannot be paused, so it is read to
its end before they begin."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

from ..trace.events import Event
from .stream import Stream

POLL = 0.05  # seconds between two checks whether to stop


class _Reader:
    """A stream and the thread that reads it."""

    def __init__(self, lane: int, stream: Stream):
        self.lane = lane
        self.stream = stream
        self.over = False
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name=f"specviz-server-{lane}", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for event in self.stream.events():
                self._events.put(event)
        finally:
            self._events.put(None)

    def received(self, seconds: float | None = None) -> Iterator[tuple[int, Event]]:
        """Yield the events that have arrived; wait up to ``seconds`` if there are none."""
        while not self.over:
            try:
                event = self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
            except queue.Empty:
                return
            seconds = None
            self.over = event is None
            if event is not None:
                yield self.lane, event


def merge_lanes(
    local: Generator[tuple[int, Any], None, None],
    streams: Mapping[int, Stream],
    cancel: threading.Event | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield (lane, event) of the local lanes and of the server streams. local: the race of the local lanes;
    its None events are passed on. Closing the generator ends all lanes."""
    readers: list[_Reader] = []
    try:
        with closing(local):
            for lane, stream in streams.items():
                if stream.here:
                    readers.append(_Reader(lane, stream))
                    yield from _rest(readers[-1:], cancel)
            readers += [_Reader(lane, stream) for lane, stream in streams.items() if not stream.here]
            for event in local:
                yield event
                for reader in readers:
                    yield from reader.received()
            yield from _rest(readers, cancel)
    finally:
        for reader in readers:
            reader.stream.close()


def _rest(readers: list[_Reader], cancel: threading.Event | None) -> Iterator[tuple[int, Event]]:
    """Read all of these streams to their end."""
    while waiting := [reader for reader in readers if not reader.over]:
        if cancel is not None and cancel.is_set():
            for reader in waiting:
                reader.stream.close()
        for reader in waiting:
            yield from reader.received(POLL)
