"""Load models outside the queue, in separate threads, while runs on loaded models continue.

A visitor who waits for a model occupies no place in the queue, and gets progress messages.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from dataclasses import dataclass, field

from .backend import Backend
from .log_lines import log_failure
from .messages import Refused, text

log = logging.getLogger(__name__)

BEAT = 0.05  # seconds between two checks
REPORT = 1.0  # seconds between two messages on progress


@dataclass(eq=False)
class _Loading:
    """The loading of one target. asking: how many visitors wait for it; stop: set when none does."""

    target: str | None
    began: float = field(default_factory=time.monotonic)
    done: Future[None] = field(default_factory=Future)
    stop: threading.Event = field(default_factory=threading.Event)
    asking: int = 0


class Loader:
    """Loads the models of visitors in two lanes, one at a time in each: those that must be fetched from the
    network first, which may take for ever, and those that are on this machine. A fetch ends when nobody waits
    for it any more."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._lock = threading.Lock()
        self._lanes: dict[bool, _Loading] = {}  # whether it fetches -> its latest loading

    async def wait(self, target: str | None) -> AsyncGenerator[str]:
        """Yield progress messages until the target's models are loaded. Raises Refused if they cannot be."""
        reported = -REPORT
        mine: _Loading | None = None
        if self._backend.ready(target):
            return
        fetches = await asyncio.to_thread(self._backend.fetches, target)
        try:
            while not self._backend.ready(target):
                mine = mine or self._join(target, fetches)
                if time.monotonic() > reported + REPORT:
                    reported = time.monotonic()
                    yield await asyncio.to_thread(self._progress, mine, fetches)
                await asyncio.sleep(BEAT)
                if mine is not None and mine.done.done():
                    mine.done.result()
                    return
        finally:
            self._leave(mine)

    def _join(self, target: str | None, fetches: bool) -> _Loading | None:
        """Return the loading of this target, started if nothing else is loading in its lane; None
        otherwise."""
        with self._lock:
            now = self._lanes.get(fetches)
            if now is None or now.done.done():
                now = self._lanes[fetches] = _Loading(target)
                threading.Thread(
                    target=self._load, args=(now, fetches), name="specviz-loading", daemon=True
                ).start()
            if now.target != target or now.stop.is_set():
                return None
            now.asking += 1
            return now

    def _leave(self, mine: _Loading | None) -> None:
        if mine is not None:
            with self._lock:
                mine.asking -= 1
                if not mine.asking:
                    mine.stop.set()

    def _load(self, loading: _Loading, fetches: bool) -> None:
        done = loading.done
        try:
            if fetches:
                self._backend.fetch(loading.target, loading.stop)
            self._backend.load(loading.target)
        except Refused as why:
            done.set_exception(why)
        except MemoryError:
            done.set_exception(Refused("models.memory"))
        except BaseException as error:  # SystemExit, too: whoever waits must get an answer
            log_failure(log, "loading failed", error)
            done.set_exception(Refused("models.failed", error=type(error).__name__))
        else:
            done.set_result(None)

    def _progress(self, mine: _Loading | None, fetches: bool) -> str:
        now = mine or self._lanes[fetches]
        what = text("models.another" if mine is None else "models.start")
        seconds, so_far = time.monotonic() - now.began, self._backend.progress(now.target)
        return text(
            "models.loading",
            what=what,
            so_far=f", {so_far}" if so_far else "",
            seconds=f", {seconds:.0f} s so far" if seconds >= REPORT else "",
        )
