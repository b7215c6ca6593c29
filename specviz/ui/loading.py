"""Models are loaded beside the line: one at a time, in a thread of its own, while what is loaded already goes on running.

Whoever waits for a model waits here, holds no place in the line and no thread, and hears how far it is.
"""
from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from typing import AsyncIterator

from .backend import Backend
from .limits import Refused

log = logging.getLogger(__name__)

BEAT = 0.05  # seconds between two looks
TELL = 1.0  # seconds between two words on progress


class Loader:
    def __init__(self, backend: Backend):
        self._backend = backend
        self._lock = threading.Lock()
        self._target: str | None = None
        self._under_way: Future[None] | None = None
        self._began = 0.0

    async def wait(self, target: str | None) -> AsyncIterator[str]:
        """Words on progress until the target's models are loaded. Raises Refused with a sentence where they cannot be."""
        told = -TELL
        while not self._backend.ready(target):
            mine = self._join(target)
            if time.monotonic() > told + TELL:
                told = time.monotonic()
                yield self._progress(mine is None)
            await asyncio.sleep(BEAT)
            if mine is not None and mine.done():
                mine.result()
                return

    def _join(self, target: str | None) -> Future[None] | None:
        """The loading of this target, begun where nothing else is loading; None while something else is."""
        with self._lock:
            if self._under_way is None or self._under_way.done():
                self._target, self._under_way, self._began = target, Future(), time.monotonic()
                threading.Thread(target=self._load, args=(target, self._under_way), name="specviz-loading", daemon=True).start()
            return self._under_way if self._target == target else None

    def _load(self, target: str | None, done: Future[None]) -> None:
        try:
            self._backend.load(target)
        except Refused as why:
            done.set_exception(why)
        except MemoryError:
            done.set_exception(Refused("There is not enough memory here to load this model."))
        except Exception as error:  # the page says a sentence, the server's log says what happened
            log.exception("loading failed")
            done.set_exception(Refused(f"The models could not be loaded ({type(error).__name__})."))
        else:
            done.set_result(None)

    def _progress(self, another: bool) -> str:
        what = "Another model is loaded first" if another else "Loading the models"
        seconds, so_far = time.monotonic() - self._began, self._backend.progress(self._target)
        return f"{what}{f', {so_far}' if so_far else ''}{f', {seconds:.0f} s so far' if seconds >= TELL else ''}."
