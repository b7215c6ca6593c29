"""Questions of the page that are no run: the Lab's measurements and the library. Those that need the engine wait in the same
line as runs, one at a time; the others are answered at once. What comes in is whatever a program sends.

An answer is a stream of lines of JSON: {"state": "queued" | "working", "text"?, "part"?}, ..., {"state": "done", "answer"}
or {"state": "error", "text"}.
"""
from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import queue
import threading
import time
from functools import partial
from typing import Any, AsyncIterator

from .limits import RUN_SECONDS, Refused, Turnstile
from .stream import BEAT, GRACE, Backend, pack

log = logging.getLogger(__name__)

LONGEST = 20_000  # characters of a question
_END = object()


class Desk:
    def __init__(self, backend: Backend, turnstile: Turnstile):
        self._backend, self._turnstile = backend, turnstile

    async def ask(self, name: str, payload: dict = {}) -> AsyncIterator[str]:  # noqa: B006
        """The answer to one question, in lines; the last one says "done" or "error"."""
        try:
            name, payload = self._read(name, payload)
            ticket = None if name in self._backend.light else self._turnstile.enter()
        except Refused as why:
            yield _error(str(why))
            return
        work = _Work(self._backend, name, payload)
        try:
            async for line in self._wait(ticket):
                yield line
            work.start(partial(self._turnstile.leave, ticket))
            ticket = None  # the worker gives it back
            async for line in work.lines():
                yield line
        finally:
            work.stop.set()
            if ticket is not None:
                self._turnstile.leave(ticket)

    def _read(self, name: Any, payload: Any) -> tuple[str, dict[str, Any]]:
        if not isinstance(name, str) or name not in self._backend.questions:
            raise Refused(f"There is no such question; there are {', '.join(sorted(self._backend.questions))}.")
        if payload is None:
            payload = {}
        try:
            fits = isinstance(payload, dict) and len(json.dumps(payload, allow_nan=False)) <= LONGEST
        except (ValueError, RecursionError):
            fits = False
        if not fits:
            raise Refused(f"A question's details must be an object of at most {LONGEST:,} characters.")
        return name, payload

    async def _wait(self, ticket: object | None) -> AsyncIterator[str]:
        told = None
        while ticket is not None and (ahead := self._turnstile.ahead(ticket)):
            if ahead != told:
                told = ahead
                yield pack({"state": "queued", "text": f"{ahead} {'run' if ahead == 1 else 'runs'} before this one."})
            await asyncio.sleep(BEAT)


class _Work:
    """One question in a worker thread."""

    def __init__(self, backend: Backend, name: str, payload: dict[str, Any]):
        self._backend, self._name, self._payload = backend, name, payload
        self._whole = name in backend.light  # answered at once: a text is the answer, not a word on progress
        self._told: queue.SimpleQueue = queue.SimpleQueue()
        self.stop = threading.Event()
        self._leave = lambda: None

    def start(self, leave: Any) -> None:
        self._leave = leave
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="specviz-ask", daemon=True).start()

    def _work(self) -> None:
        try:
            for part in self._backend.answer(self._name, self._payload, self.stop, RUN_SECONDS):
                self._told.put(part)
        except Refused as why:
            self._told.put(why)
        except MemoryError:
            self._told.put(Refused("There is not enough memory to measure this."))
        except Exception as error:  # the page says a sentence, the server's log says what happened
            log.exception("a question failed")
            self._told.put(Refused(f"The engine failed ({type(error).__name__})."))
        finally:
            self._leave()
            self._told.put(_END)

    async def lines(self) -> AsyncIterator[str]:
        """Parts as they come, at the page's beat and no faster; the last one is the answer."""
        last, until = None, time.monotonic() + RUN_SECONDS + GRACE
        while time.monotonic() < until:
            fresh, over = None, False
            while not self._told.empty() and not over:
                told = self._told.get_nowait()
                if isinstance(told, Refused):
                    yield _error(str(told))
                    return
                over = told is _END
                if not over:
                    fresh = told
                    last = told if self._whole or not isinstance(told, str) else last
                    until = time.monotonic() + RUN_SECONDS + GRACE  # reading a large checkpoint is not silence
            if over:
                yield _done(last)
                return
            if fresh is not None and not self._whole:
                yield pack({"state": "working", **({"text": fresh} if isinstance(fresh, str) else {"part": fresh})})
            await asyncio.sleep(BEAT)
        yield _error("The engine did not answer in time; the question was given up.")


def _done(answer: Any) -> str:
    try:
        return pack({"state": "done", "answer": answer})
    except ValueError:
        return _error("The answer holds a number that is not finite.")


def _error(text: str) -> str:
    return pack({"state": "error", "text": text})
