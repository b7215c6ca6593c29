"""Load models outside the queue: one at a time, in a separate thread, while runs on loaded models continue.

A visitor who waits for a model occupies no place in the queue, and gets progress messages.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import Future

from .backend import Backend
from .log_lines import log_failure
from .messages import Refused, text

log = logging.getLogger(__name__)

BEAT = 0.05  # seconds between two checks
REPORT = 1.0  # seconds between two messages on progress


class Loader:
    """Loads the models of visitors one after another, in a thread of its own."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._lock = threading.Lock()
        self._target: str | None = None
        self._loading: Future[None] | None = None
        self._began = 0.0

    async def wait(self, target: str | None) -> AsyncGenerator[str]:
        """Yield progress messages until the target's models are loaded. Raises Refused if they cannot be."""
        reported = -REPORT
        while not self._backend.ready(target):
            mine = self._join(target)
            if time.monotonic() > reported + REPORT:
                reported = time.monotonic()
                yield self._progress(mine is None)
            await asyncio.sleep(BEAT)
            if mine is not None and mine.done():
                mine.result()
                return

    def _join(self, target: str | None) -> Future[None] | None:
        """Return the loading task of this target, started if nothing else is loading; None otherwise."""
        with self._lock:
            if self._loading is None or self._loading.done():
                self._target = target
                self._loading = Future()
                self._began = time.monotonic()
                threading.Thread(
                    target=self._load, args=(target, self._loading), name="specviz-loading", daemon=True
                ).start()
            return self._loading if self._target == target else None

    def _load(self, target: str | None, done: Future[None]) -> None:
        try:
            self._backend.load(target)
        except Refused as why:
            done.set_exception(why)
        except MemoryError:
            done.set_exception(Refused("models.memory"))
        except BaseException as error:  # SystemExit, too: whoever waits must get an answer
            log_failure(log, "loading failed", error)
            done.set_exception(Refused("models.failed", error=type(error).__name__))
        else:
            done.set_result(None)

    def _progress(self, another: bool) -> str:
        what = text("models.another" if another else "models.start")
        seconds, so_far = time.monotonic() - self._began, self._backend.progress(self._target)
        return text(
            "models.loading",
            what=what,
            so_far=f", {so_far}" if so_far else "",
            seconds=f", {seconds:.0f} s so far" if seconds >= REPORT else "",
        )
