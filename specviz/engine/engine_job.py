"""One job for the engine, a run or a Lab question: a ticket in the queue, a worker thread, and a stop flag.
The job ends when its reader leaves."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from .log_lines import log_failure
from .messages import Refused, text
from .run_queue import GRACE, LOOK, RUN_SECONDS, RunQueue, Ticket, Visitor

log = logging.getLogger(__name__)

BEAT = 0.05  # seconds between two frames
NEXT = 0.01  # seconds between two looks of the run that comes next, whether it may begin
SLICE = 0.05  # seconds that a run which gives way has the engine for, at least
UNREAD = 4  # unread messages after which no more are made: a slow reader gets fewer and larger ones
PATIENCE = 10.0  # seconds without a message read before the reader counts as gone


class ReaderGone(Refused):
    """The reader has left, or no longer reads."""


class EngineJob:
    """Runs work in a thread and streams its output.

    ``work(stop)`` runs in the thread, may block, and yields its output; it ends soon after ``stop`` is set.
    ``run_queue``: None for work that needs no model; ``visitor``: the reader of the output; ``batch``: as
    in Ticket; ``gives_way``: the runs of other addresses may go between two outputs."""

    def __init__(
        self,
        run_queue: RunQueue | None,
        work: Callable[[threading.Event], Iterator[Any]],
        visitor: Visitor = Visitor(),
        batch: str = "",
        gives_way: bool = False,
    ):
        self.stop = threading.Event()
        self._run_queue = run_queue
        self._work = work
        self._visitor = visitor
        self._batch = batch
        self._gives_way = gives_way
        self._reader = Reader(visitor)
        self._output: queue.SimpleQueue = queue.SimpleQueue()
        self._over = threading.Event()
        self._why: Refused | None = None

    async def stream(self, beat: Callable[[], float] = lambda: BEAT) -> AsyncGenerator[str | list[Any]]:
        """While the job waits, yield the number of runs before it, as text; then yield all output since the
        last beat, as a list. Raises Refused if the queue is full, the work fails, or the engine stops
        responding; ReaderGone if nobody reads."""
        ticket = self._run_queue.enter(self._visitor.address, self._batch) if self._run_queue else None
        started = False
        try:
            async for ahead in self._wait(ticket):
                yield text("queue.ahead", count=ahead, runs="run" if ahead == 1 else "runs")
            if self.stop.is_set():
                return
            self._start(ticket)
            started = True  # from now on the thread leaves the queue
            async for output in self._follow(beat, ticket):
                yield output
        finally:
            if not self._over.is_set():
                self.stop.set()
            if not started:
                self._leave(ticket)

    async def _wait(self, ticket: Ticket | None) -> AsyncGenerator[int]:
        shown = None
        waiting = self._run_queue
        while (
            waiting is not None
            and ticket is not None
            and (ahead := waiting.ahead(ticket))
            and not self.stop.is_set()
        ):
            if not self._reader.behind() and ahead != shown:
                shown = ahead
                yield ahead
            await asyncio.sleep(NEXT if ahead == 1 else BEAT)

    def _start(self, ticket: Ticket | None) -> None:
        context = (
            contextvars.copy_context()
        )  # a leased accelerator is identified by the request it is leased for
        threading.Thread(
            target=context.run, args=(self._run, ticket), name="specviz-job", daemon=True
        ).start()

    def _leave(self, ticket: Ticket | None) -> None:
        """Give the place in the queue back."""
        if self._run_queue is not None and ticket is not None:
            self._run_queue.leave(ticket)

    def _run(self, ticket: Ticket | None) -> None:
        """Run in the thread; every exit passes through here and gives the place in the queue back."""
        began = time.monotonic()
        try:
            for output in self._work(self.stop):
                self._output.put(output)
                if self._run_queue is not None and ticket is not None:
                    self._run_queue.alive(ticket)
                    if self._gives_way and time.monotonic() - began > SLICE:
                        self._let_others_go(self._run_queue, ticket)
                        began = time.monotonic()
                        if self.stop.is_set():
                            break
        except Refused as why:
            self._why = why
        except MemoryError:
            self._why = Refused("run.memory")
        except (
            BaseException
        ) as error:  # SystemExit of a drafter, too: a thread that ends without a word would look like success
            log_failure(log, "the engine failed", error)
            self._why = Refused("run.crashed", error=type(error).__name__)
        finally:
            self._leave(ticket)
            self._over.set()

    def _let_others_go(self, run_queue: RunQueue, ticket: Ticket) -> None:
        """Wait while runs of other addresses come first, or until the job is stopped."""
        if run_queue.give_way(ticket):
            while run_queue.ahead(ticket) and not self.stop.is_set():
                time.sleep(NEXT)

    async def _follow(self, beat: Callable[[], float], ticket: Ticket | None) -> AsyncGenerator[list[Any]]:
        looked, silent = time.monotonic(), 0.0
        silence = self._run_queue.silence if self._run_queue else RUN_SECONDS + GRACE
        while True:
            if self._reader.behind():
                await asyncio.sleep(beat())
                continue
            over, output = (
                self._over.is_set(),
                self._drain(),
            )  # this order ensures that the last output is not missed
            now = time.monotonic()
            waits = ticket is not None and ticket.active is None  # for other runs
            silent = 0.0 if output or waits else silent + min(LOOK, now - looked)
            looked = now
            if output:
                yield output
            if over:
                if self._why:
                    raise self._why
                return
            if silent > silence:
                self._leave(ticket)  # the thread may hang for ever
                raise Refused("run.silent")
            await asyncio.sleep(beat())

    def _drain(self) -> list[Any]:
        output = []
        while not self._output.empty():
            output.append(self._output.get_nowait())
        return output


class Reader:
    """Detects whether output is still being read: then the number of unread messages falls from time to
    time."""

    def __init__(self, visitor: Visitor):
        self.visitor = visitor
        self._before = 0
        self._looked = time.monotonic()
        self._waited = 0.0

    def behind(self) -> bool:
        """Return whether so much output is unread that no more should be sent now; to be called repeatedly.
        Raises ReaderGone if nothing was read for PATIENCE seconds, of which at most LOOK are counted
        between two calls."""
        unread, now = self.visitor.unread(), time.monotonic()
        self._waited = (
            0.0 if unread == 0 or unread < self._before else self._waited + min(LOOK, now - self._looked)
        )
        self._before, self._looked = unread, now
        if self._waited > PATIENCE:
            self.visitor.forget()
            raise ReaderGone("run.unread", seconds=PATIENCE)
        return unread >= UNREAD
