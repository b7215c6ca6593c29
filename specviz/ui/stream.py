"""From an engine's records to what a page or a program receives: one run, as a stream of frames at a steady beat.

The engine runs in a thread of its own and never waits for a reader. Twenty times a second everything it has told since the
last beat becomes one frame (docs/TRACE.md, "Live frames"). Whoever stops reading ends the run.
"""
from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import queue
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Iterator, Protocol

from .limits import RUN_SECONDS, Ask, Refused, Turnstile

log = logging.getLogger(__name__)

BEAT = 0.05  # seconds between frames
GRACE = 15.0  # seconds beyond the run's own deadline before a silent engine is given up
SLOW, SLOWER = 20, 40  # frames that a reader may be behind before the beat becomes half, a quarter
WINDOW_FRAMES, WINDOW_CHARACTERS = 8, 60_000

Record = dict[str, Any]
Frame = dict[str, Any]


class Backend(Protocol):
    """What the page needs from an engine. ``run`` and ``load`` are called in a worker thread and may block."""

    cards: dict[str, Any]
    questions: frozenset[str]  # what the Lab may ask; those of ``light`` need no model and no place in the line
    light: frozenset[str]

    def ready(self, target: str | None) -> bool:
        """Whether a run could start without loading anything."""

    def load(self, target: str | None) -> str:
        """Load the models; a short description of them for people. Raises Refused with a sentence."""

    def targets(self) -> list[dict[str, str]]:
        """Models that a visitor may choose: {name, model, title, about}, the default first; its name is empty."""

    def why_not(self, target: str | None = None) -> dict[str, str]:
        """Methods that cannot run on this model, which is loaded: key -> one sentence that says what would make it work."""

    def run(self, ask: Ask, cancel: threading.Event, seconds: float) -> Iterator[list[Record] | dict[str, str]]:
        """The records of all lanes, in the order they happened, a batch at a time, and maybe a status between. Ends within
        one round of ``cancel``."""

    def answer(self, name: str, payload: dict[str, Any], cancel: threading.Event, seconds: float) -> Iterator[Any]:
        """The answer to a question as it grows, the last one whole; a text is a word on progress. Loads what it needs."""


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


_END = object()


class Live:
    """One run in flight: a place in the line, a worker thread, and the switch that stops it."""

    def __init__(self, backend: Backend, turnstile: Turnstile, ask: Ask, first: int = 0):
        self.stop = threading.Event()
        self.frames = Frames(first)
        self._backend, self._turnstile, self._ask = backend, turnstile, ask
        self._told: queue.SimpleQueue = queue.SimpleQueue()
        self._ticket: object | None = None
        self._started = False
        self._seen: int | None = None

    def seen(self, number: int) -> None:
        """A reader says which frame it has shown last: one that falls behind is told less often, and more at a time."""
        self._seen = min(number, self.frames.first)

    def beat(self) -> float:
        """Seconds to the next frame."""
        behind = 0 if self._seen is None else self.frames.first - self._seen
        return BEAT * (1 if behind < SLOW else 2 if behind < SLOWER else 4)

    async def stream(self) -> AsyncIterator[Frame]:
        """Frames until the run is over; the last one says how it ended. Leaving early stops the engine."""
        try:
            self._ticket = self._turnstile.enter()
            async for frame in self._wait():
                yield frame
            if self.stop.is_set():
                yield self.frames.close(said("stopped", "Stopped before it began."))
                return
            self._start()
            async for frame in self._follow():
                yield frame
        except Refused as why:
            yield self.frames.close(said("error", str(why)))
        finally:
            self.stop.set()
            if not self._started and self._ticket is not None:
                self._turnstile.leave(self._ticket)

    async def _wait(self) -> AsyncIterator[Frame]:
        told = None
        while (ahead := self._turnstile.ahead(self._ticket)) and not self.stop.is_set():
            if ahead != told:
                told = ahead
                yield self.frames.add([], said("queued", f"{ahead} {'run' if ahead == 1 else 'runs'} before this one."))
            await asyncio.sleep(BEAT)

    def _start(self) -> None:
        self._started = True
        context = contextvars.copy_context()  # a leased accelerator is told apart by the request it is leased for
        threading.Thread(target=context.run, args=(self._work,), name="specviz-run", daemon=True).start()

    def _work(self) -> None:
        """In the worker thread: every way a run can end passes through here, and gives the place in the line back."""
        try:
            if not self._backend.ready(self._ask.target):
                self._told.put(said("loading", "Loading the models."))
                self._backend.load(self._ask.target)
            self._told.put(said("loading", "Reading the prompt."))
            if not self.stop.is_set():
                for batch in self._backend.run(self._ask, self.stop, RUN_SECONDS):
                    self._told.put(batch)
        except Refused as why:
            self._told.put(why)
        except MemoryError:
            self._told.put(Refused("There is not enough memory for this run: ask for fewer tokens or fewer lanes."))
        except Exception as error:  # the page says a sentence, the server's log says what happened
            log.exception("a run failed")
            self._told.put(Refused(f"The engine failed ({type(error).__name__}); the next run starts afresh."))
        finally:
            self._turnstile.leave(self._ticket)
            self._told.put(_END)

    async def _follow(self) -> AsyncIterator[Frame]:
        patience = time.monotonic() + RUN_SECONDS + GRACE
        while True:
            await asyncio.sleep(self.beat())
            records, status, over = self._drain()
            if status:
                patience = time.monotonic() + RUN_SECONDS + GRACE  # reading a large checkpoint is not silence
            if over:
                if records:
                    yield self.frames.add(records)
                yield self.frames.close(over)
                return
            if records or status:
                yield self.frames.add(records, said("live", "") if records else status)
            if time.monotonic() > patience:
                yield self.frames.close(said("error", "The engine did not answer in time; the run was given up."))
                return

    def _drain(self) -> tuple[list[Record], dict[str, str] | None, dict[str, str] | None]:
        """Everything told since the last beat: records, a status on the way, and the status it ended with."""
        records: list[Record] = []
        status = None
        while not self._told.empty():
            told = self._told.get_nowait()
            if told is _END:
                return records, status, _outcome(self.frames.records + records, self.stop.is_set())
            if isinstance(told, list):
                records += told
            elif isinstance(told, Refused):
                return records, status, said("error", str(told))
            else:
                status = told
        return records, status, None


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
