"""How far the first compilation of the kernels is: numba's own events, counted. Without numba in memory
nothing is compiled, so this module does not import it."""

from __future__ import annotations

import time
from threading import Lock
from typing import Any

# Compiled functions of a pass and a draft loop, variants included: counted on a machine with AVX2. Another
# instruction set may have a few more or less, so the share is cut at 1.
EXPECTED = 44
REST = 10.0  # seconds without a compilation, after which it is over: a function may be compiled alone, later


class CompileProgress:
    """Counts functions that numba compiled since the last ``reset``. Compilations are nested, and several
    threads may compile."""

    def __init__(self, expected: int = EXPECTED):
        self._expected, self._lock = expected, Lock()
        self._open = self._done = 0
        self._last = 0.0

    def listen(self) -> None:
        """Hear of numba's compilations from now on."""
        from numba.core import event

        progress = self

        class Listener(event.Listener):
            def on_start(self, event: Any) -> None:
                progress.begin()

            def on_end(self, event: Any) -> None:
                progress.end()

        event.register("numba:compile", Listener())

    def begin(self) -> None:
        with self._lock:
            self._open += 1

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            self._done += 1
            self._last = time.monotonic()

    def reset(self) -> None:
        """Forget what was compiled: the kernels are complete."""
        with self._lock:
            self._open = self._done = 0

    def share(self) -> float | None:
        """Return the share of the functions that are compiled, below 1; None while nothing is compiled."""
        with self._lock:
            if not self._open and (not self._done or time.monotonic() > self._last + REST):
                return None
            return min(self._done / self._expected, 0.99)


PROGRESS = CompileProgress()
