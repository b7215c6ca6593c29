"""Questions of the page that are no run: the Lab's measurements and the library. Those that need the engine wait in the same
line as runs, one at a time; the others are answered at once. What comes in is whatever a program sends.

An answer is a stream of lines of JSON: {"state": "queued" | "working", "text"?, "part"?}, ..., {"state": "done", "answer"}
or {"state": "error", "text"}.
"""
from __future__ import annotations

import json
from contextlib import aclosing, nullcontext
from typing import Any, AsyncIterator

import gradio as gr

from .backend import Backend
from .http_guard import visitor
from .engine_job import Job
from .limits import RUN_SECONDS, Refused, Turnstile, Visitor
from .loading import Loader
from .stream import pack

LONGEST = 20_000  # characters of a question


class Desk:
    def __init__(self, backend: Backend, turnstile: Turnstile, loader: Loader | None = None):
        self._backend, self._turnstile, self._loader = backend, turnstile, loader or Loader(backend)

    async def ask(self, name: str, payload: dict = {}, request: gr.Request = None) -> AsyncIterator[str]:  # noqa: B006
        """The answer to one question, in lines; the last one says "done" or "error"."""
        try:
            self._check(name, payload)
            who = visitor(request)
            with nullcontext() if name in self._backend.light else self._turnstile.visit(who.address):
                async with aclosing(self._lines(name, payload or {}, who)) as lines:
                    async for line in lines:
                        yield line
        except Refused as why:
            yield _line(state="error", text=str(why))

    async def _lines(self, name: str, payload: dict, who: Visitor) -> AsyncIterator[str]:
        answer = None
        light = name in self._backend.light  # answered at once: a text is the answer, not a word on progress
        if not light:
            async with aclosing(self._loader.wait(self._backend.wants(payload))) as words:
                async for text in words:
                    yield _line(state="working", text=text)
        job = Job(None if light else self._turnstile, lambda stop: self._backend.answer(name, payload, stop, RUN_SECONDS), who)
        async with aclosing(job.tell()) as parts:
            async for part in parts:
                if isinstance(part, str):
                    yield pack({"state": "queued", "text": part})
                    continue
                answer = next((told for told in reversed(part) if light or not isinstance(told, str)), answer)
                if not light:
                    yield _line(state="working", **{"text" if isinstance(part[-1], str) else "part": part[-1]})
        yield _line(state="done", answer=answer)

    def _check(self, name: Any, payload: Any) -> None:
        if not isinstance(name, str) or name not in self._backend.questions:
            raise Refused(f"There is no such question; there are {', '.join(sorted(self._backend.questions))}.")
        try:
            fits = isinstance(payload, (dict, type(None))) and len(json.dumps(payload, allow_nan=False)) <= LONGEST
        except (ValueError, RecursionError):
            fits = False
        if not fits:
            raise Refused(f"A question's details must be an object of at most {LONGEST:,} characters.")


def _line(**told: Any) -> str:
    try:
        return pack(told)
    except ValueError:
        raise Refused("The answer holds a number that is not finite.") from None
