"""Requests of the page other than runs: the Lab's measurements and the library of recordings. Those that
need the engine wait in the same queue as runs, one at a time; the others (``Backend.light``) are answered
at once. Input is untrusted.

An answer is a stream of JSON lines: {"state": "queued" | "working", "text"?, "part"?}, ..., {"state":
"done", "answer"} or {"state": "error", "text", "code"}.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, nullcontext
from typing import Any, cast

import gradio as gr

from ..engine.backend import Backend
from ..engine.engine_job import EngineJob
from ..engine.limits import QUESTION_CHARACTERS, RUN_SECONDS, RunQueue, Visitor, check_size
from ..engine.loading import Loader
from ..engine.messages import Refused
from ..engine.stream import json_for_html
from ..serve.http_guard import visitor


class LabQuestions:
    """The endpoint that answers the Lab's questions for one backend."""

    def __init__(self, backend: Backend, run_queue: RunQueue, loader: Loader | None = None):
        self._backend = backend
        self._run_queue = run_queue
        self._loader = loader or Loader(backend)

    async def ask(
        self,
        name: str,
        payload: dict = {},  # noqa: B006
        request: gr.Request = cast(Any, None),
    ) -> AsyncIterator[str]:
        """Answer one question: yield lines of JSON, the last one with state "done" or "error"."""
        try:
            self._check(name, payload)
            who = visitor(request)
            with nullcontext() if name in self._backend.light else self._run_queue.open_run(who.address):
                async with aclosing(self._lines(name, payload or {}, who)) as lines:
                    async for line in lines:
                        yield line
        except Refused as why:
            yield _line(state="error", text=str(why), code=why.code)

    async def _lines(self, name: str, payload: dict, who: Visitor) -> AsyncGenerator[str]:
        answer = None
        light = name in self._backend.light  # answered at once: a text is the answer, not progress
        if not light:
            async with aclosing(self._loader.wait(self._backend.wants(payload))) as progress:
                async for words in progress:
                    yield _line(state="working", text=words)
        job = EngineJob(
            None if light else self._run_queue,
            lambda stop: self._backend.answer(name, payload, stop, RUN_SECONDS),
            who,
        )
        async with aclosing(job.stream()) as parts:
            async for part in parts:
                if isinstance(part, str):
                    yield json_for_html({"state": "queued", "text": part})
                    continue
                answer = next((one for one in reversed(part) if light or not isinstance(one, str)), answer)
                if not light:
                    yield _line(
                        state="working", **{"text" if isinstance(part[-1], str) else "part": part[-1]}
                    )
        yield _line(state="done", answer=answer)

    def _check(self, name: Any, payload: Any) -> None:
        check_size("name", name)
        check_size("payload", payload)
        if not isinstance(name, str) or name not in self._backend.questions:
            raise Refused("field.question", names=", ".join(sorted(self._backend.questions)))
        try:
            fits = (
                isinstance(payload, (dict, type(None)))
                and len(json.dumps(payload, allow_nan=False)) <= QUESTION_CHARACTERS
            )
        except (ValueError, RecursionError):
            fits = False
        if not fits:
            raise Refused("field.details", most=QUESTION_CHARACTERS)


def _line(**fields: Any) -> str:
    try:
        return json_for_html(fields)
    except ValueError:
        raise Refused("answer.not_finite") from None
