"""A simulated server: one method answers many requests by continuous batching, with its own clock. Requests
join the batch between rounds and leave when they are finished.

A prompt is prefilled when its request joins, while the others wait. If no request is active, the clock
jumps to the next arrival.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, quantiles
from typing import Any

import torch

from ..core import Clock, State
from ..loops.batched import Batch, Request
from ..run.machine import Machine
from ..run.session import Session
from ..trace.events import Event, Finished, Verified

PARTS = 4  # of a measurement; the spread of their speeds shows how much it varies
ROWS_OF_A_REQUEST = (
    3  # what a further request costs a packed pass beside its rows: its keys and values are read, too
)


@dataclass(frozen=True)
class TimedRequest:
    """One request: prompt tokens, answer length, seed; arrival: seconds after the start, None in a closed
    load."""

    task: str
    ids: list[int]
    length: int
    seed: int
    arrival: float | None = None


@dataclass
class Answer:
    """The times of one request, in seconds on the server's clock: arrival, first token, end (``done``); and
    its number of tokens."""

    task: str
    arrival: float
    first: float | None = None
    done: float | None = None
    tokens: int = 0

    @property
    def token_time(self) -> float | None:
        """Seconds per token after the first token; None if unknown."""
        if self.first is None or self.done is None or self.tokens < 2:
            return None
        return (self.done - self.first) / (self.tokens - 1)

    @property
    def ended(self) -> float:
        """The end time. Only for a finished answer."""
        assert self.done is not None
        return self.done

    @property
    def first_seconds(self) -> float:
        """Seconds from arrival to the first token. Only for an answer that has one."""
        assert self.first is not None
        return self.first - self.arrival


@dataclass
class LoadResult:
    """The result of one method under one load. rounds: batch size of each round; rows: tokens scored by the
    target; drafted, accepted: draft tokens; reading, drafting: seconds of prefills and of drafting; busy:
    other processes took the CPU."""

    answers: list[Answer] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)  # requests in each
    rows: int = 0
    drafted: int = 0
    accepted: int = 0
    reading: float = 0.0  # seconds spent on prompts, and on drafts
    drafting: float = 0.0
    busy: bool = False

    def row(self) -> dict[str, Any]:
        """Return the figures as a row of the report. Times are in seconds, each as [median, 95th
        percentile]."""
        done = [answer for answer in self.answers if answer.done is not None]
        if not done:
            return {"requests": 0, "tokens": 0}
        span = max(answer.ended for answer in done) - min(answer.arrival for answer in done)
        tokens = sum(answer.tokens for answer in done)
        return {
            "requests": len(done),
            "tokens": tokens,
            "seconds": span,
            "goodput": tokens / span,
            "throughput": self.rows / span,
            "first_token": median_and_p95([answer.first_seconds for answer in done]),
            "token_time": median_and_p95(
                [answer.token_time for answer in done if answer.token_time is not None]
            ),
            "latency": median_and_p95([answer.ended - answer.arrival for answer in done]),
            "parts": goodput_of_parts(done),
            "batch": fmean(self.rounds),
            "rounds": len(self.rounds),
            "rows": self.rows,
            "reading": self.reading / span,
            "drafting": self.drafting / span,
            "drafted": self.drafted / sum(self.rounds),
            "accepted": self.accepted / self.drafted if self.drafted else None,
            "busy": self.busy,
        }


def goodput_of_parts(done: list[Answer]) -> list[float]:
    """Divide the finished answers, in order of completion, into equal parts; return the generated tokens
    per second in each. Empty if there are too few answers."""
    ordered, out = sorted(done, key=lambda answer: answer.ended), []
    began = min(answer.arrival for answer in done)
    for i in range(PARTS if len(done) >= 2 * PARTS else 0):
        mine = ordered[i * len(done) // PARTS : (i + 1) * len(done) // PARTS]
        out.append(sum(answer.tokens for answer in mine) / max(mine[-1].ended - began, 1e-9))
        began = mine[-1].ended
    return out


def median_and_p95(values: list[float]) -> list[float] | None:
    """Return [median, 95th percentile]; None without values."""
    if len(values) < 2:
        return values * 2 or None
    cuts = quantiles(values, n=20, method="inclusive")
    return [cuts[9], cuts[18]]


class Server:
    """Answers requests with one method by continuous batching. ``slots``: largest batch; ``clock``: its
    own, paused while other methods are measured; ``machine``: monitors its passes. The state of its batch
    policy is kept as long as the server exists."""

    def __init__(
        self,
        session: Session,
        slots: int,
        source: Callable[[], float] = time.perf_counter,
        machine: Machine | None = None,
    ):
        self.session = session
        self.slots = slots
        self._source = source
        self._skipped = 0.0
        self._machine = machine
        self._packed = "batch" in session.loaded.capabilities  # the requests of a round share one pass
        self.clock, self._joint = Clock(lambda: self._source() + self._skipped), {}
        self.batch, self._lane = Batch(self.clock, self._joint), object()
        self.live: dict[Request, tuple[Answer, Any]] = {}

    def serve(self, asks: Sequence[TimedRequest], users: int) -> Generator[LoadResult]:
        """Answer all requests: at their arrival times, or, without arrival times, ``users`` of them at
        once. Yield the result so far (always the same object) after each round, while the clock is paused.

        Close the generator to stop early: KV caches are freed, and only finished requests have an end
        time."""
        out = LoadResult()
        waiting = deque()
        later = deque(asks)
        self.clock = Clock(lambda: self._source() + self._skipped)
        self.batch, self._lane = (
            Batch(self.clock, self._joint),
            object(),
        )  # the machine counts each load by itself
        for _ in range(len(later) if later and later[0].arrival is not None else min(users, len(later))):
            self._comes(later.popleft(), waiting, out)
        try:
            while waiting or self.live:
                t0 = self.clock.now()
                self._admit(waiting)
                out.reading += self.clock.now() - t0
                if not self.live:
                    self._skipped += max(0.0, waiting[0][1].arrival - self.clock.now())
                    continue
                for answer in self._round(out):
                    if later:
                        self._comes(replace(later.popleft(), arrival=answer.done), waiting, out)
                self.clock.pause()
                if not (waiting or self.live):
                    self._observe(out, Finished("length", {}, None))
                yield out
                self.clock.resume()
        finally:
            for _, kit in self.live.values():
                kit.close()
            self.live.clear()

    def _comes(self, ask: TimedRequest, waiting: deque, out: LoadResult) -> None:
        out.answers.append(Answer(ask.task, ask.arrival or 0.0))
        waiting.append((ask, out.answers[-1]))

    def _admit(self, waiting: deque) -> None:
        session = self.session
        while waiting and waiting[0][1].arrival <= self.clock.now() and len(self.live) < self.slots:
            ask, answer = waiting.popleft()
            kit = session.loaded.kit()
            try:
                parts = session.method.build(kit, **session.knobs)
                state = State(
                    list(ask.ids),
                    replace(session.sampling, seed=ask.seed),
                    limit=ask.length,
                    costs=session.costs(),
                    stop=session.loaded.end_tokens,
                )
                with torch.inference_mode():
                    request, _ = self.batch.join(parts, kit.target, state)
            except BaseException:
                kit.close()
                raise
            self.live[request] = (answer, kit)

    def _observe(self, out: LoadResult, event: Event) -> None:
        if self._machine is not None:
            out.busy |= any(check.kind == "busy" for check in self._machine.observe(self._lane, event))

    def _round(self, out: LoadResult) -> list[Answer]:
        """Play one round; return the requests it finished."""
        with torch.inference_mode():
            played = self.batch.round()
        now, done = self.clock.now(), []
        rows, passes = (
            sum(len(outcome.scores.logits) for _, outcome in played),
            1 if self._packed else len(played),
        )
        attended = ROWS_OF_A_REQUEST * (len(played) // passes - 1)
        self._observe(
            out, Verified(0, 0.0, played[0][1].seconds["verify"] / passes, max(1, rows // passes) + attended)
        )
        out.rounds.append(len(played))
        out.rows += rows
        out.drafting += played[0][1].seconds["draft"]  # one time for all of them
        for request, outcome in played:
            answer, kit = self.live[request]
            request.state.notes.clear()
            answer.first = now if answer.first is None else answer.first
            answer.tokens += len(outcome.committed)
            out.drafted += len(outcome.tree)
            out.accepted += len(outcome.committed) - 1 + (outcome.verdict.kind == "accepted")
            if request.state.done:
                answer.done = now
                done.append(answer)
                self.batch.leave(request)
                kit.close()
                del self.live[request]
        return done
