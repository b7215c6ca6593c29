"""Threads that run a compiled function together, and the buffers they work in.

A compiled call is made by the caller and by each worker with its own number; they meet at barriers. Workers
sleep while there is nothing to do. A call that finds the workers busy with another one runs on the caller's
thread alone, with the same result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..core.threads import thread_count
from .memory import address, aligned, round_up
from .vector import INPUT_BYTES

MOST_THREADS = 8


def call_threads() -> int:
    """Return the number of threads of a compiled call."""
    return min(thread_count(), MOST_THREADS)


class Workers:
    """Threads that make compiled calls together with the caller's. Threads start when first needed."""

    def __init__(self):
        self._busy = threading.Lock()
        self._wake: list[threading.Lock] = []
        self._job: tuple[Callable[..., Any], int, tuple[int, ...], Any] | None = None
        self._process = os.getpid()

    def call(
        self, function: Callable[..., Any], *args: int, space: Workspace, most: int = MOST_THREADS
    ) -> None:
        """Run ``function(thread, threads, *args, shared, private)`` on every thread, at most ``most``."""
        count = min(call_threads(), space.threads, most)
        if count > 1 and self._busy.acquire(blocking=False):
            try:
                self._start(count - 1)
                space.reset(count)
                self._job = function, count, args, space
                for lock in self._wake[: count - 1]:
                    lock.release()
                function(0, count, *args, *space.addresses(0))
            finally:
                self._busy.release()
        else:
            space.reset(1)
            function(0, 1, *args, *space.addresses(0))

    def _start(self, count: int) -> None:
        if self._process != os.getpid():  # threads do not survive a fork
            self._wake, self._process = [], os.getpid()
        while len(self._wake) < count:
            lock = threading.Lock()
            lock.acquire()
            self._wake.append(lock)
            name = f"specviz kernel {len(self._wake)}"
            threading.Thread(target=self._work, args=(len(self._wake), lock), name=name, daemon=True).start()

    def _work(self, number: int, lock: threading.Lock) -> None:
        while True:
            lock.acquire()
            assert self._job is not None
            function, count, args, space = self._job
            function(number, count, *args, *space.addresses(number))


class Workspace:
    """The buffers of one compiled call: for up to ``rows`` rows of inputs of up to ``width`` numbers, and
    attention over up to ``slots`` slots. heads, inner: numbers of a row of queries and of the feed-forward.
    """

    def __init__(self, threads: int, rows: int, width: int, heads: int = 0, inner: int = 0, slots: int = 0):
        self.threads, self.rows, self.width = threads, rows, width
        self.heads, self.inner, self.slots = heads, inner, slots
        self._sync = aligned(16 * threads, np.int64)
        self._sync[:] = 0
        shared = [
            aligned((rows, heads), np.float32),
            aligned((rows, inner), np.float32),
            aligned((rows, heads), np.float32),
            self._sync,
        ]
        private = [
            [
                aligned(2 * INPUT_BYTES * rows * width, np.uint8),
                aligned(rows, np.float32),
                aligned(2 * rows, np.int32),
                aligned(2 * rows * 64 + 64, np.int32),
                aligned(3 * (round_up(2 * slots, 64) + 192), np.float32),
                aligned(max(3 * heads, 16), np.float32),
                aligned(1024, np.int64),
            ]
            for _ in range(threads)
        ]
        best = aligned(16 * threads, np.int64)
        self._kept = shared, private, best
        self._shared = np.array([address(a) for a in (*shared, *private[0][:3], best)], np.int64)
        self._private = [np.array([address(a) for a in mine], np.int64) for mine in private]

    def fits(self, threads: int, rows: int, width: int, heads: int, inner: int, slots: int) -> bool:
        """Return whether the buffers are large enough."""
        return (
            self.threads >= threads
            and self.rows >= rows
            and self.width >= width
            and self.heads >= heads
            and self.inner >= inner
            and self.slots >= slots
        )

    def reset(self, count: int) -> None:
        """Bring the barriers of the first ``count`` threads to one phase. Phases only grow, so that a thread
        that still looks at the last barrier of the call before leaves it."""
        phases = self._sync[: 16 * count : 16]
        phases[:] = phases.max()

    def addresses(self, thread: int) -> tuple[int, int]:
        """Return the addresses of the shared buffers and of those of one thread."""
        return address(self._shared), address(self._private[thread])


workers = Workers()
_spaces: list[Workspace] = []
_spaces_lock = threading.Lock()
KEPT_ROWS = 64  # a workspace for more rows, such as a prefill's, is not kept


@contextmanager
def workspace(
    rows: int, width: int, heads: int = 0, inner: int = 0, slots: int = 0
) -> Iterator[tuple[Workspace, Workers]]:
    """Context with a workspace that no other call uses, and the workers."""
    threads = call_threads()
    asked = threads, rows, width, heads, inner, slots
    with _spaces_lock:
        found = next((space for space in _spaces if space.fits(*asked)), None)
        if found is not None:
            _spaces.remove(found)
    if found is None:
        found = Workspace(
            threads,
            max(rows, 16),
            width,
            heads,
            inner,
            max(round_up(slots, 256), 1024) if heads else 0,
        )
    try:
        yield found, workers
    finally:
        if found.rows <= KEPT_ROWS:
            with _spaces_lock:
                _spaces.insert(0, found)
                del _spaces[8:]
