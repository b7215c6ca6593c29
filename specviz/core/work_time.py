"""Seconds of work: those on the clock, without those in which this thread was ready to run and waited for a core
that other processes held. So the times of methods that take turns compare on a busy machine, too.

Linux counts the waiting of each thread. Elsewhere it is taken for 0, and so is the time that a hypervisor gives to
another machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_STATISTICS = "/proc/thread-self/schedstat"  # nanoseconds on a core, nanoseconds of waiting for one, turns


class _Statistics:
    """The open statistics of one thread; closed with it. Other threads may read them, too."""

    def __init__(self):
        self._last = 0
        try:
            self._file = os.open(_STATISTICS, os.O_RDONLY)
        except OSError:
            self._file = -1

    def __del__(self):
        if self._file >= 0:
            os.close(self._file)

    def waited(self) -> int:
        """Return for how many nanoseconds the thread has waited for a core; of one that is over, the last
        that was read."""
        if self._file >= 0:
            with suppress(OSError, IndexError):
                self._last = int(os.pread(self._file, 80, 0).split()[1])
        return self._last


_threads = threading.local()


def _forget() -> None:
    global _threads
    _threads = threading.local()  # in a forked process the files show its parent's threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def thread_work() -> Callable[[], float]:
    """Return a function, for any thread, whose differences are seconds of work of the thread that asks now."""
    mine: _Statistics | None = getattr(_threads, "mine", None)
    if mine is None:
        mine = _threads.mine = _Statistics()

    def seconds() -> float:
        before = -1
        waited = mine.waited()
        now = 0.0
        # A wait between the two readings would be subtracted without having been counted.
        while waited != before:
            before = waited
            now = time.perf_counter()
            waited = mine.waited()
        return now - waited / 1e9

    return seconds


def work_seconds() -> float:
    """Return a number of seconds whose differences, on one thread, are seconds of its work."""
    return thread_work()()
