"""The time limit of a run that shares its machine with others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from .request import read_seconds

PATIENCE = 2.0  # seconds on the clock for each second of work, after which a run ends all the same


class TimeLimit:
    """A limit of ``seconds`` of a run's own work, and of ``patience`` times as many on the clock.

    Work is processor time of the thread that asks, so time in which the processor served other processes,
    or in which the run waited, does not count. If another thread asks than before, the time since counts
    whole, because a thread's processor time can only be read by itself. Several runs may share a limit. With
    a patience of 1 the clock alone decides.
    """

    def __init__(
        self,
        seconds: float,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.thread_time,
    ):
        self.seconds, self.patience = seconds, patience
        self._clock, self._work = clock, work
        self._worked = 0.0
        self._thread, self._clock_then, self._work_then = threading.get_ident(), clock(), work()
        self._ends_at = self._clock_then + patience * seconds

    def left(self) -> float:
        """Return the seconds of work that are left; 0 if time on the clock is up."""
        thread, clock, work = threading.get_ident(), self._clock(), self._work()
        waited = clock - self._clock_then
        self._worked += min(waited, work - self._work_then) if thread == self._thread else waited
        self._thread, self._clock_then, self._work_then = thread, clock, work
        return 0.0 if clock >= self._ends_at else max(0.0, self.seconds - self._worked)

    def reached(self) -> bool:
        """Return whether the limit is reached."""
        return self.left() <= 0

    def share(self, parts: int) -> TimeLimit:
        """Return a new limit, from now on, for one of ``parts`` equal parts of what is left."""
        return TimeLimit(self.left() / parts, self.patience, self._clock, self._work)


def read_time_limit(deadline: Any) -> TimeLimit | None:
    """Parse a deadline: seconds on the clock, a TimeLimit, or None for none. Raises SessionError."""
    if isinstance(deadline, TimeLimit):
        return deadline
    seconds = read_seconds(deadline)
    return None if seconds is None else TimeLimit(seconds, patience=1.0)
