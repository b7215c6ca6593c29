"""From an engine's records to what a page or a program receives: one run, as a stream of frames at a steady beat.

The engine runs in a thread of its own (job.py) and never waits for a reader. Twenty times a second everything it has told since the
last beat becomes one frame (docs/TRACE.md, "Live frames"); three times where cores are few and the engine needs them. A reader that
falls behind gets fewer and larger frames; whoever stops reading ends the run. Models are loaded before the run stands in line
(loading.py).
"""
from __future__ import annotations

import asyncio
import json
import os
import threading
import uuid
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Iterator

from .backend import Backend, Record
from .engine_job import BEAT, Job, Reader, DeviceTopology
from .limits import RUN_SECONDS, Ask, Refused, Turnstile, Visitor
from .loading import Loader

SLOW, SLOWER = 20, 40  # frames that a reader may be behind before the beat becomes half, a quarter
SELDOM = 0.5  # seconds between two frames at most, however seldom a reader says that it paints
CORES = 1 if len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) > 2 else 6  # beats
WINDOW_FRAMES, WINDOW_CHARACTERS = 8, 60_000

Frame = dict[str, Any]


def pack(value: Any) -> str:
    """JSON on one line that is safe inside a page: no ``<``, no line separator."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@dataclass
class Frames:
    """Numbers the frames of one run, and keeps the few last ones as the text that the board is given."""

    first: int
    records: list[Record] = field(default_factory=list)
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _begun: bool = False
    _lines: deque[str] = field(default_factory=deque)

    def add(self, records: list[Record], status: dict[str, str] | None = None) -> Frame:
        """The next frame. The first one that carries records clears the board; until then the last trace stays on it."""
        frame: Frame = {"s": self.first, "e": records}
        if records and not self._begun:
            frame |= {"new": True, "run": self.run}
            self._begun = True
        if status:
            frame["status"] = status
        return self._keep(frame, records)

    def close(self, status: dict[str, str]) -> Frame:
        """The last frame: everything once more, so that whatever was missed is mended."""
        frame: Frame = {"s": self.first, "e": self.records, "status": status}
        if self._begun:
            frame["snap"] = True
        self._lines.clear()
        return self._keep(frame, [])

    def _keep(self, frame: Frame, fresh: list[Record]) -> Frame:
        try:
            self._lines.append(pack(frame))
        except ValueError:
            raise Refused("The engine told a number that is not finite; the run was ended.") from None
        self.first += 1
        self.records.extend(fresh)
        while len(self._lines) > WINDOW_FRAMES or (len(self._lines) > 2 and sum(map(len, self._lines)) > WINDOW_CHARACTERS):
            self._lines.popleft()
        return frame

    def window(self) -> str:
        """The last frames as the board's value: a reader that missed an update finds it here."""
        return "\n".join(self._lines)


def shown(number: int, records: list[Record]) -> str:
    """A whole finished run as a board's value."""
    return _alone(number, {"snap": True, "e": records, "status": said("done", "")})


def empty(number: int, sentence: str) -> str:
    """A cleared board."""
    return _alone(number, {"e": [], "status": said("idle", sentence)})


def _alone(number: int, rest: Frame) -> str:
    return pack({"s": number, "new": True, "run": uuid.uuid4().hex[:12], **rest})


class Live:
    """One run in flight, as frames. gone: it ended because nobody read them."""

    def __init__(self, backend: Backend, turnstile: Turnstile, ask: Ask, first: int = 0, visitor: Visitor = Visitor(),
                 loader: Loader | None = None):
        self.frames = Frames(first)
        self.gone = False
        self._backend, self._turnstile, self._ask, self._visitor = backend, turnstile, ask, visitor
        self._loader = loader or Loader(backend)
        self._job = Job(turnstile, self._work, visitor)
        self._seen: int | None = None
        self._paints = 0.0  # seconds between two paintings of the reader
        self.stop = self._job.stop

    def seen(self, number: int, every: Any = None) -> None:
        """A reader says which frame it has shown last, and how often it paints (milliseconds): one that falls behind, or paints
        seldom, is told less often, and more at a time."""
        self._seen = min(number, self.frames.first)
        if isinstance(every, (int, float)) and every >= 0:
            self._paints = min(every / 1000, SELDOM)

    def beat(self) -> float:
        """Seconds to the next frame."""
        if self._seen is None:  # a program, which paints nothing
            return BEAT
        behind = self.frames.first - self._seen
        return max(self._paints, BEAT * CORES * (1 if behind < SLOW else 2 if behind < SLOWER else 4))

    async def stream(self) -> AsyncIterator[Frame]:
        """Frames until the run is over; the last one says how it ended. Leaving early stops the engine."""
        try:
            with self._turnstile.visit(self._visitor.address):
                async with aclosing(self._parts()) as parts:
                    async for records, status in parts:
                        yield self.frames.add(records, status)
                await caught_up(self._visitor)
            yield self.frames.close(_outcome(self.frames.records, self.stop.is_set()))
        except DeviceTopology as why:
            self.gone = True
            yield self.frames.add([], said("stopped", str(why)))
        except Refused as why:
            yield self.frames.close(said("error", str(why)))

    async def _parts(self) -> AsyncIterator[tuple[list[Record], dict[str, str]]]:
        """What each frame tells: first the loading, then the line, then the run."""
        try:
            async with aclosing(self._loader.wait(self._ask.models)) as words:
                async for text in words:
                    if self.stop.is_set():
                        return
                    yield [], said("loading", text)
        except BaseException:  # who leaves while a model loads ends the run, as later on
            self.stop.set()
            raise
        async with aclosing(self._job.tell(self.beat)) as parts:
            async for part in parts:
                records, status = _sorted(part)
                if records or status:
                    yield records, said("live", "") if records else status

    def _work(self, stop: threading.Event) -> Iterator[list[Record] | dict[str, str]]:
        yield said("loading", "Reading the prompt.")
        if not stop.is_set():
            yield from self._backend.run(self._ask, stop, RUN_SECONDS)


async def caught_up(visitor: Visitor) -> None:
    """Until a reader has read what was told: only then is it given everything once more. Raises Unread where nobody reads."""
    reader = Reader(visitor)
    while visitor.unread():
        reader.behind()
        await asyncio.sleep(BEAT)


def _sorted(part: str | list[Any]) -> tuple[list[Record], dict[str, str] | None]:
    """The records among what was told, and the last status."""
    if isinstance(part, str):
        return [], said("queued", part)
    statuses = [told for told in part if not isinstance(told, list)]
    return [record for told in part if isinstance(told, list) for record in told], statuses[-1] if statuses else None


def said(state: str, text: str) -> dict[str, str]:
    return {"state": state, "text": text}


def _outcome(records: list[Record], stopped: bool) -> dict[str, str]:
    """How a run ended, in one sentence, from what its lanes say."""
    ends = [r["finish"] for r in records if r["type"] == "done"]
    errors = [r["why"] for r in records if r["type"] == "error"]
    if errors and len(errors) >= len(ends):
        return said("error", errors[0])
    if stopped or "stopped" in ends:
        return said("stopped", "Stopped; what was decoded is kept." if records else "Stopped before the first token.")
    if "deadline" in ends:
        return said("stopped", f"Ended after {RUN_SECONDS:.0f} seconds, the limit of a run; what was decoded is kept.")
    return said("done", f"{_failed(records)} The other lanes finished." if errors else "")


def _failed(records: list[Record]) -> str:
    """Which lane failed, and why."""
    error = next(r for r in records if r["type"] == "error")
    titles = {r["lane"]: r["method"]["title"] for r in records if r["type"] == "header"}
    return f"{titles.get(error['lane'], 'A lane')} failed: {error['why']}"
