"""Convert an engine's records to the frames that a page or a program receives: one run, at a steady rate.

The engine runs in its own thread (engine_job.py) and never waits for a reader. Twenty times per second all
new records become one frame (docs/TRACE.md, "Live frames"); three times per second on machines with few
cores, because the engine needs them. A slow reader gets fewer and larger frames; a reader that stops
reading ends the run. Models are loaded before the run enters the queue (loading.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from .backend import Backend, Record
from .engine_job import BEAT, EngineJob, Reader, ReaderGone
from .format_trials import try_format
from .limits import RUN_SECONDS, RunQueue, RunRequest, Visitor
from .loading import Loader
from .messages import Refused, text

SLOW = 20  # unread frames beyond which frames are sent half as often
SLOWER = 40  # and a quarter as often
LONGEST_BEAT = 0.5  # seconds between two frames at most, however rarely a reader paints
CORES = (
    1
    if len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) > 2
    else 6
)  # beats
WINDOW_FRAMES = 8  # last frames kept as text for the board
WINDOW_CHARACTERS = 60_000  # characters of them

Frame = dict[str, Any]


def json_for_html(value: Any) -> str:
    """Return JSON on one line that is safe inside an HTML page: without ``<`` and line separators."""
    packed = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return packed.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@dataclass
class Frames:
    """Numbers the frames of one run, and keeps the last few as the board's value. first: number of the
    first frame; records: all records so far; run: an id of the run."""

    first: int
    records: list[Record] = field(default_factory=list)
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _begun: bool = False
    _lines: deque[str] = field(default_factory=deque)

    def add(self, records: list[Record], status: dict[str, str] | None = None) -> Frame:
        """Return the next frame, with these records. The first frame with records clears the board; until
        then it shows the previous run."""
        frame: Frame = {"s": self.first, "e": records}
        if records and not self._begun:
            frame |= {"new": True, "run": self.run}
            self._begun = True
        if status:
            frame["status"] = status
        return self._keep(frame, records)

    def close(self, status: dict[str, str]) -> Frame:
        """Return the last frame, which contains all records again, so that missed frames do not matter."""
        frame: Frame = {"s": self.first, "e": self.records, "status": status}
        if self._begun:
            frame["snap"] = True
        self._lines.clear()
        return self._keep(frame, [])

    def _keep(self, frame: Frame, fresh: list[Record]) -> Frame:
        try:
            self._lines.append(json_for_html(frame))
        except ValueError:
            raise Refused("run.not_finite") from None
        self.first += 1
        self.records.extend(fresh)
        while len(self._lines) > WINDOW_FRAMES or (
            len(self._lines) > 2 and sum(map(len, self._lines)) > WINDOW_CHARACTERS
        ):
            self._lines.popleft()
        return frame

    def window(self) -> str:
        """The last few frames, as the board's value, so that a reader that missed an update finds it here."""
        return "\n".join(self._lines)


def finished_board(number: int, records: list[Record]) -> str:
    """Return a finished run as a board's value."""
    return _single_frame(number, {"snap": True, "e": records, "status": status_of("done", "")})


def empty_board(number: int, code: str) -> str:
    """Return a cleared board with a message of messages.py."""
    return _single_frame(number, {"e": [], "status": status_of("idle", text(code))})


def _single_frame(number: int, rest: Frame) -> str:
    return json_for_html({"s": number, "new": True, "run": uuid.uuid4().hex[:12], **rest})


class LiveRun:
    """One run in progress, as frames. ``gone``: it ended because nobody read the frames; ``refused``: why
    it could not run."""

    def __init__(
        self,
        backend: Backend,
        run_queue: RunQueue,
        asked: RunRequest,
        first: int = 0,
        visitor: Visitor = Visitor(),
        loader: Loader | None = None,
    ):
        self.frames = Frames(first)
        self.gone = False
        self.refused: Refused | None = None
        self._backend = backend
        self._run_queue = run_queue
        self._asked = asked
        self._visitor = visitor
        self._loader = loader or Loader(backend)
        self._job = EngineJob(run_queue, self._work, visitor)
        self._painted: int | None = None
        self._paint_seconds = 0.0  # between two paintings of the reader
        self.stop = self._job.stop

    def painted(self, number: int, every: Any = None) -> None:
        """Receive a reader's report: the frame it painted last, and the milliseconds between paints. A slow
        reader gets fewer and larger frames."""
        self._painted = min(number, self.frames.first)
        if isinstance(every, (int, float)) and every >= 0:
            self._paint_seconds = min(every / 1000, LONGEST_BEAT)

    def beat(self) -> float:
        """Return the seconds until the next frame."""
        if self._painted is None:  # a program, which paints nothing
            return BEAT
        behind = self.frames.first - self._painted
        return max(self._paint_seconds, BEAT * CORES * (1 if behind < SLOW else 2 if behind < SLOWER else 4))

    async def stream(self) -> AsyncGenerator[Frame]:
        """Yield frames until the run is over; the last one says how it ended. Closing the generator stops
        the engine."""
        try:
            with self._run_queue.open_run(self._visitor.address):
                async with aclosing(self._parts()) as parts:
                    async for records, status in parts:
                        yield self.frames.add(records, status)
                await wait_until_read(self._visitor)
            yield self.frames.close(_outcome(self.frames.records, self.stop.is_set()))
        except ReaderGone as why:
            self.gone = True
            yield self.frames.add([], status_of("stopped", str(why), why.code))
        except Refused as why:
            self.refused = why
            yield self.frames.close(status_of("error", str(why), why.code))

    async def _parts(self) -> AsyncGenerator[tuple[list[Record], dict[str, str]]]:
        """Yield the content of each frame: first the loading, then the queue, then the run."""
        try:
            async with aclosing(self._loader.wait(self._asked.models)) as progress:
                async for words in progress:
                    if self.stop.is_set():
                        return
                    yield [], status_of("loading", words)
        except BaseException:  # a reader who leaves while a model loads ends the run, as later on
            self.stop.set()
            raise
        await try_format(self._asked.generation.get("response_format"))
        async with aclosing(self._job.stream(self.beat)) as parts:
            async for part in parts:
                records, status = _split(part)
                if records:
                    yield records, status_of("live", "")
                elif status:
                    yield records, status

    def _work(self, stop: threading.Event) -> Iterator[list[Record] | dict[str, str]]:
        yield status_of("loading", text("run.reading"))
        if not stop.is_set():
            yield from self._backend.run(self._asked, stop, RUN_SECONDS)


async def wait_until_read(visitor: Visitor) -> None:
    """Wait until a reader has read all frames, before the last frame is sent. Raises ReaderGone if nobody
    reads."""
    reader = Reader(visitor)
    while visitor.unread():
        reader.behind()
        await asyncio.sleep(BEAT)


def _split(part: str | list[Any]) -> tuple[list[Record], dict[str, str] | None]:
    """Return the records in a part of the output, and its last status."""
    if isinstance(part, str):
        return [], status_of("queued", part)
    statuses = [one for one in part if not isinstance(one, list)]
    return [record for one in part if isinstance(one, list) for record in one], statuses[
        -1
    ] if statuses else None


def status_of(state: str, words: str, code: str = "") -> dict[str, str]:
    """Return a run's status as plain data."""
    return {"state": state, "text": words} | ({"code": code} if code else {})


def _outcome(records: list[Record], stopped: bool) -> dict[str, str]:
    """Return the end of a run as the status of its last frame."""
    ends = {r["lane"]: r["finish"] for r in records if r["type"] == "done"}
    errors = [r for r in records if r["type"] == "error"]
    if errors and len(errors) >= len(ends):
        return status_of("error", errors[0]["why"], "run.engine")
    if stopped or "stopped" in ends.values():
        return _coded("stopped", "run.stopped" if records else "run.stopped_early")
    if "deadline" in ends.values():
        return _coded("stopped", "run.deadline", seconds=RUN_SECONDS)
    titles = {r["lane"]: r["method"]["title"] for r in records if r["type"] == "header"}
    if unfinished := [title for lane, title in titles.items() if lane not in ends]:
        return _coded("error", "run.unfinished", title=unfinished[0])
    if errors:
        title = titles.get(errors[0]["lane"], "A lane")
        return _coded(
            "done", "run.lane_failed", title=title, why=errors[0]["why"].removeprefix(f"{title} stopped: ")
        )
    unused = [
        (r["lane"], r["totals"]["head_unused"])
        for r in records
        if r["type"] == "done" and r.get("totals", {}).get("head_unused")
    ]
    if unused:
        lane, found = unused[0]
        return _coded("done", "run.head_unused", title=titles.get(lane, "A lane"), tried=found["tried"])
    return status_of("done", "")


def _coded(state: str, code: str, **values: Any) -> dict[str, str]:
    return status_of(state, text(code, **values), code)
