"""One piece of work for the engine, a run or a question of the Lab: a place in the line, a thread of its own, and the switch that
stops it. Whoever stops listening ends it."""
from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
import time
from typing import Any, AsyncIterator, Callable, Iterator

from .limits import RUN_SECONDS, Refused, Turnstile, Visitor

log = logging.getLogger(__name__)

BEAT = 0.05  # seconds between two tellings
GRACE = 15.0  # seconds beyond its own deadline before a silent engine is given up
UNREAD = 4  # messages that may lie unread before no more are made: a slow reader is told less often, and more at a time
PATIENCE = 10.0  # seconds without a message read before the reader counts as gone


class DeviceTopology(Refused):
    """The reader is gone, or has stopped reading."""


class Job:
    """``work(stop)`` runs in the thread, may block, and yields what there is to tell; it ends soon after ``stop`` is set.
    ``turnstile``: the line to wait in; None for what needs no engine. ``visitor``: who reads what is told."""

    def __init__(self, turnstile: Turnstile | None, work: Callable[[threading.Event], Iterator[Any]], visitor: Visitor = Visitor()):
        self.stop = threading.Event()
        self._turnstile, self._work = turnstile, work
        self._reader = Reader(visitor)
        self._told: queue.SimpleQueue = queue.SimpleQueue()
        self._over = threading.Event()
        self._why: Refused | None = None

    async def tell(self, beat: Callable[[], float] = lambda: BEAT) -> AsyncIterator[str | list[Any]]:
        """While it waits, how many stand before it, as text; then everything told since the last beat, as a list. Raises Refused
        with a sentence when the line is full, the work fails, the engine falls silent, or (Unread) nobody reads."""
        ticket = self._turnstile.enter() if self._turnstile else None
        try:
            async for ahead in self._wait(ticket):
                yield f"{ahead} {'run' if ahead == 1 else 'runs'} before this one."
            if self.stop.is_set():
                return
            self._start(ticket)
            ticket = None  # the thread gives it back
            async for told in self._follow(beat):
                yield told
        finally:
            if not self._over.is_set():
                self.stop.set()
            if ticket is not None:
                self._turnstile.leave(ticket)

    async def _wait(self, ticket: object | None) -> AsyncIterator[int]:
        told = None
        while ticket is not None and (ahead := self._turnstile.ahead(ticket)) and not self.stop.is_set():
            if not self._reader.behind() and ahead != told:
                told = ahead
                yield ahead
            await asyncio.sleep(BEAT)

    def _start(self, ticket: object | None) -> None:
        context = contextvars.copy_context()  # a leased accelerator is told apart by the request it is leased for
        threading.Thread(target=context.run, args=(self._run, ticket), name="specviz-job", daemon=True).start()

    def _run(self, ticket: object | None) -> None:
        """In the thread: every way it can end passes through here, and gives the place in the line back."""
        try:
            for told in self._work(self.stop):
                self._told.put(told)
        except Refused as why:
            self._why = why
        except MemoryError:
            self._why = Refused("There is not enough memory for this: ask for fewer tokens, lanes or samples.")
        except Exception as error:  # the page says a sentence, the server's log says what happened
            log.exception("the engine failed")
            self._why = Refused(f"The engine failed ({type(error).__name__}); the next run starts afresh.")
        finally:
            if ticket is not None:
                self._turnstile.leave(ticket)
            self._over.set()

    async def _follow(self, beat: Callable[[], float]) -> AsyncIterator[list[Any]]:
        last_event = time.monotonic()
        while True:
            if self._reader.behind():
                await asyncio.sleep(beat())
                continue
            over, told = self._over.is_set(), self._drain()  # in this order: what was told last is not missed
            if told:
                last_event = time.monotonic()
                yield told
            if over:
                if self._why:
                    raise self._why
                return
            if time.monotonic() > last_event + RUN_SECONDS + GRACE:
                raise Refused("The engine did not answer in time and was given up.")
            await asyncio.sleep(beat())

    def _drain(self) -> list[Any]:
        told = []
        while not self._told.empty():
            told.append(self._told.get_nowait())
        return told


class Reader:
    """Whether somebody reads: what lies unread shrinks now and then."""

    def __init__(self, visitor: Visitor):
        self.visitor = visitor
        self._before, self._since = 0, time.monotonic()

    def behind(self) -> bool:
        """Whether enough lies unread already. Raises Unread when nothing was read for PATIENCE seconds; the rest is thrown away."""
        unread, now = self.visitor.unread(), time.monotonic()
        if unread == 0 or unread < self._before:
            self._since = now
        self._before = unread
        if now - self._since > PATIENCE:
            self.visitor.forget()
            raise DeviceTopology(f"Nobody read this for {PATIENCE:.0f} seconds, so it was stopped.")
        return unread >= UNREAD
