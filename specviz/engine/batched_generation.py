"""Answer concurrent requests of the OpenAI-compatible endpoint in one batch, in one thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from .generation import Chunk, Generation, answers, prepare
from .messages import Refused
from .run_queue import GRACE, LOOK, RUN_SECONDS

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

SILENCE = RUN_SECONDS + GRACE / 2  # seconds after which a batch that plays no round is given up


@dataclass(eq=False)
class _Job:
    asked: Generation
    sessions: list[Any]  # of generation.prepare
    seconds: float
    cancel: threading.Event
    output: queue.SimpleQueue = field(
        default_factory=queue.SimpleQueue
    )  # lists of chunks, an exception, or None at the end
    runs: list[Generator[list[Chunk]]] = field(default_factory=list)


_Run = tuple[_Job, Generator[list[Chunk]]]  # one answer of a request


class BatchedGeneration:
    """Answers the concurrent requests for one loaded model. largest: the largest number of requests that
    have shared a forward pass so far; caches: KV caches of conversations, for later turns."""

    def __init__(self, loaded: Loaded, caches: Any = None):
        self.loaded = loaded
        self.caches = caches
        self.largest = 0
        self._new: list[_Job] = []
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def generate(self, asked: Generation, seconds: float, cancel: threading.Event) -> Iterator[list[Chunk]]:
        """Answer a request; yield its chunks, as generation.generate does. Its forward passes are shared
        with those of other requests."""
        from ..loops.continuous import ContinuousBatch

        until = time.monotonic() + seconds
        sessions = prepare(
            self.loaded, asked, ContinuousBatch()
        )  # in the request's own thread, not the batch's
        job = _Job(asked, sessions, until - time.monotonic(), cancel)
        with self._lock:
            self._new.append(job)
            if (
                self._thread is None
            ):  # a thread that ends with the last request: torch keeps workers for every thread that computes
                self._thread = threading.Thread(target=self._work, name="specviz-batch", daemon=True)
                self._thread.start()
        try:
            while (part := self._next(job)) is not None:
                if isinstance(part, BaseException):
                    raise part
                yield part
        finally:
            cancel.set()

    def _next(self, job: _Job) -> Any:
        """Return the next output of a request. Raises Refused if the batch has hung: it is left to itself, and
        the next request begins another one."""
        looks = max(1, round(SILENCE / LOOK))  # time in which this process stood still is at most one of them
        for _ in range(looks):
            with suppress(queue.Empty):
                return job.output.get(timeout=min(SILENCE, LOOK))
        with self._lock:
            if job in self._new:
                self._new.remove(job)
            self._thread = None
        raise Refused("run.silent")

    def _work(self) -> None:
        from ..loops.continuous import ContinuousBatch

        batch = ContinuousBatch()
        lines: dict[
            str, list[_Run]
        ] = {}  # address -> its answers; the one that advanced longest ago is first
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():  # it was given up
                    return
                new, self._new = self._new, []
                if not lines and not new:
                    self._thread = None
                    return
            if not lines:
                batch = ContinuousBatch()  # a round that failed breaks its own batch only
            for job in new:
                if self._guarded(job, partial(self._begin, job, batch)):
                    lines.setdefault(job.asked.address, []).extend((job, run) for run in job.runs)
            _advance_in_turn(lines, self._guarded, lambda: bool(self._new))
            self.largest = max(self.largest, batch.largest)

    def _begin(self, job: _Job, batch: Any) -> None:
        for session in job.sessions:
            session.batch = batch
        job.runs = answers(job.sessions, job.asked, job.seconds, job.cancel, self.caches)

    @staticmethod
    def _guarded(job: _Job, work: Callable[[], None]) -> bool:
        """Do some work for a request; return whether it continues. A failure ends this request only."""
        try:
            work()
        except BaseException as error:  # it is raised in the request's own thread
            for run in job.runs:
                run.close()
            job.runs = []
            job.output.put(error)
            return False
        if not job.runs:
            job.output.put(None)
        return bool(job.runs)


def _advance_in_turn(
    lines: dict[str, list[_Run]],
    guarded: Callable[[_Job, Callable[[], None]], bool],
    arrived: Callable[[], bool] = lambda: False,
) -> None:
    """Advance answers by one round: as many of each address as the address with the fewest has, so that one
    address with many requests does not slow the round of another one; one of each if a request has arrived,
    which waits for the end of the round. Answers that are over leave."""
    each = min(map(len, lines.values()), default=0)
    for address, line in list(lines.items()):
        done = 0
        for job, run in line[:each]:
            if done and arrived():
                break
            done += 1
            if run in job.runs:
                guarded(job, partial(_advance, job, run))
        going = [one for one in (*line[done:], *line[:done]) if one[1] in one[0].runs]
        lines[address] = going
        if not going:
            del lines[address]


def _advance(job: _Job, run: Generator[list[Chunk]]) -> None:
    """Advance an answer of a request by one round."""
    part = next(run, None)
    if part is None:
        job.runs.remove(run)
    else:
        job.output.put(part)
