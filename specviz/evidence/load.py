"""Many users at once: what speculation brings under load, measured live on one machine.

Every method meets the same arrivals: the same prompts, answer lengths, seeds and, with a rate, times. Open load: requests arrive
at a rate (Poisson). Closed load: so many users, each of whom asks anew when answered. Requests join the batch between rounds and
leave when done; a prompt is read when its request joins, while the others wait. Where nobody is there, the clock jumps to the next
arrival. Goodput is tokens written a second, throughput is rows scored a second, written or not (Liu et al. 2406.14066).
"""
from __future__ import annotations

import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from statistics import fmean, quantiles
from typing import Any, Callable, Sequence

import torch

from ..core import Clock, Sampling, State
from ..loops.batched import Batch, Request, why_not_batched
from ..methods import catalogue
from ..run.request import SessionError, read_number, read_whole
from ..run.session import Session, find_method
from .benchmark import Item, choose, read_suite

METHODS = ("autoregressive", "speculative", "smartspec", "tetris")
COLUMNS = ["load", "method", "goodput", "against_plain", "throughput", "first_token", "token_time", "latency", "batch", "drafted",
           "accepted"]
MOST_USERS, MOST_REQUESTS = 64, 10_000
SHORTEST = 0.5  # of the longest answer: lengths are drawn from there to it

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Ask:
    """One request: its prompt's tokens, its answer's length, its seed; at: seconds after the start, None where a user asks it."""

    task: str
    ids: list[int]
    length: int
    seed: int
    at: float | None = None


@dataclass
class Answer:
    """When a request came, wrote its first token and was done; seconds on the clock of the measurement."""

    task: str
    came: float
    first: float | None = None
    done: float | None = None
    tokens: int = 0

    @property
    def token_time(self) -> float | None:
        """Seconds a token after the first round's."""
        return (self.done - self.first) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass
class Served:
    """What one method did under one load."""

    answers: list[Answer] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)  # requests in each
    rows: int = 0
    drafted: int = 0
    accepted: int = 0

    def row(self) -> dict[str, Any]:
        """The figures; times in seconds, each as [median, 95th percentile]."""
        done = [answer for answer in self.answers if answer.done is not None]
        if not done:
            return {"requests": 0, "tokens": 0}
        span = max(answer.done for answer in done) - min(answer.came for answer in done)
        tokens = sum(answer.tokens for answer in done)
        return {"requests": len(done), "tokens": tokens, "seconds": span, "goodput": tokens / span, "throughput": self.rows / span,
                "first_token": middle([answer.first - answer.came for answer in done]),
                "token_time": middle([answer.token_time for answer in done if answer.token_time is not None]),
                "latency": middle([answer.done - answer.came for answer in done]), "batch": fmean(self.rounds),
                "drafted": self.drafted / sum(self.rounds), "accepted": self.accepted / self.drafted if self.drafted else None}


def middle(values: list[float]) -> list[float] | None:
    """Median and 95th percentile."""
    if len(values) < 2:
        return values * 2 or None
    cuts = quantiles(values, n=20, method="inclusive")
    return [cuts[9], cuts[18]]


class Server:
    """One method, answering. ``slots``: most requests in a batch."""

    def __init__(self, session: Session, slots: int, source: Callable[[], float] = time.perf_counter):
        self.session, self.slots, self._source, self._skipped = session, slots, source, 0.0
        self.clock, self.batch = Clock(lambda: self._source() + self._skipped), None
        self.live: dict[Request, tuple[Answer, Any]] = {}

    def serve(self, asks: Sequence[Ask], users: int, cancel: threading.Event, told: Callable[[Served], None]) -> Served:
        """Answer all asks; without times, ``users`` of them at once. After a cancel only what was done by then has an end."""
        out, waiting, later = Served(), deque(), deque(asks)
        self.clock, self.batch = Clock(lambda: self._source() + self._skipped), Batch(self.clock)
        self.batch.clock = self.clock
        for _ in range(len(later) if later and later[0].at is not None else min(users, len(later))):
            self._comes(later.popleft(), waiting, out)
        try:
            while (waiting or self.live) and not cancel.is_set():
                self._admit(waiting)
                if not self.live:
                    self._skipped += max(0.0, waiting[0][1].came - self.clock.now())
                    continue
                for answer in self._round(out):
                    if later:
                        self._comes(replace(later.popleft(), at=answer.done), waiting, out)
                told(out)
        finally:
            for _, kit in self.live.values():
                kit.close()
            self.live.clear()
        return out

    def _comes(self, ask: Ask, waiting: deque, out: Served) -> None:
        out.answers.append(Answer(ask.task, ask.at or 0.0))
        waiting.append((ask, out.answers[-1]))

    def _admit(self, waiting: deque) -> None:
        session = self.session
        while waiting and waiting[0][1].came <= self.clock.now() and len(self.live) < self.slots:
            ask, answer = waiting.popleft()
            kit = session.loaded.kit()
            try:
                parts = session.method.build(kit, **session.knobs)
                state = State(list(ask.ids), replace(session.sampling, seed=ask.seed), limit=ask.length, costs=session.costs(),
                              stop=session.loaded.end_tokens)
                with torch.inference_mode():
                    request, _ = self.batch.join(parts, kit.target, state)
            except BaseException:
                kit.close()
                raise
            self.live[request] = (answer, kit)

    def _round(self, out: Served) -> list[Answer]:
        """Play a round; the requests it answered."""
        with torch.inference_mode():
            played = self.batch.round()
        now, done = self.clock.now(), []
        out.rounds.append(len(played))
        for request, outcome in played:
            answer, kit = self.live[request]
            request.state.notes.clear()
            answer.first = now if answer.first is None else answer.first
            answer.tokens += len(outcome.committed)
            out.rows += len(outcome.scores.logits)
            out.drafted += len(outcome.tree)
            out.accepted += len(outcome.committed) - 1 + (outcome.verdict.kind == "accepted")
            if request.state.done:
                answer.done = now
                done.append(answer)
                self.batch.leave(request)
                kit.close()
                del self.live[request]
        return done


def load_test(loaded: Any, methods: Sequence[str] = METHODS, *, users: Sequence[int] = (8,), rates: Sequence[float] = (),
              requests: Any = 16, suite: Any = None, tasks: Sequence[str] = (), max_new_tokens: Any = 64,
              sampling: Sampling = Sampling(), slots: Any = 16, progress: Progress | None = None,
              cancel: threading.Event | None = None, deterministic: bool = False) -> dict[str, Any]:
    """{environment, rows}: a row for each load and method.

    users: closed loads, so many users each; rates: open loads in requests a second, instead; requests: how many of each load.
    progress: called after each round with method, load, done, of, tokens. cancel: set it and what was measured is reported. The
    methods of a load take turns in a shuffled order, after a short request of each that is thrown away. Raises SessionError.
    """
    loads = _loads(users, rates)
    count, slots = read_whole("requests", requests, 1, MOST_REQUESTS), read_whole("slots", slots, 1, MOST_USERS)
    length, cancel = read_whole("max_new_tokens", max_new_tokens, 2), cancel or threading.Event()
    sessions, skipped = _sessions(loaded, methods, sampling, deterministic)
    first = next(iter(sessions.values()))
    asks = requests_of(first, choose([*read_suite(suite)], tasks), count, length)
    rows, dice = [], random.Random(sampling.seed)
    for session in sessions.values():
        Server(session, slots).serve([replace(asks[0], length=8)], 1, cancel, lambda _: None)
    for kind, load in loads:
        timed = arriving(asks, load, sampling.seed) if kind == "rate" else asks
        for key in dice.sample(list(sessions), len(sessions)):
            if cancel.is_set():
                break

            def told(served: Served, kind: str = kind, load: float = load, key: str = key) -> None:
                if progress:
                    done = sum(answer.done is not None for answer in served.answers)
                    progress({"method": key, kind: load, "done": done, "of": count, "tokens": sum(a.tokens for a in served.answers)})
            served = Server(sessions[key], slots).serve(timed, int(load) if kind == "users" else 0, cancel, told)
            rows.append({"load": f"{load:g} {'users' if kind == 'users' else 'requests/s'}", kind: load, "method": key, **served.row()})
    order = list(sessions)
    rows.sort(key=lambda row: (row.get("users") or row.get("rate"), order.index(row["method"])))
    env = {**loaded.facts["env"], "target": loaded.facts["target"], "draft": loaded.facts["draft"], "requests": count,
           "max_new_tokens": length, "slots": slots, "temperature": sampling.temperature, "seed": sampling.seed,
           "packed": "batch" in loaded.provides, "skipped": skipped, "interrupted": cancel.is_set()}
    return {"environment": env, "rows": compared(rows)}


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with ``against_plain``: goodput over that of plain decoding under the same load, None where it is not known."""
    plain = {row["load"]: row.get("goodput") for row in rows if row["method"] == next(iter(catalogue()))}
    return [{**row, "against_plain": row["goodput"] / plain[row["load"]] if row.get("goodput") and plain.get(row["load"]) else None}
            for row in rows]


def _loads(users: Sequence[int], rates: Sequence[float]) -> list[tuple[str, float]]:
    if rates:
        loads = [("rate", read_number("rate", rate)) for rate in rates]
    else:
        loads = [("users", read_whole("users", one, 1, MOST_USERS)) for one in users]
    if not loads or any(load <= 0 for _, load in loads):
        raise SessionError("A load is a number of users, or of requests a second above 0.")
    return loads


def _sessions(loaded: Any, keys: Sequence[str], sampling: Sampling, deterministic: bool) -> tuple[dict[str, Session], dict[str, str]]:
    """The methods that can share passes here, and why the others cannot."""
    sessions, skipped = {}, {}
    for method in dict.fromkeys(find_method(key).key for key in keys):
        try:
            session = Session(loaded, method, None, sampling, deterministic=deterministic)
        except SessionError as error:
            skipped[method] = str(error)
            continue
        kit = loaded.kit()
        reason = why_not_batched(session.method.build(kit, **session.knobs))
        kit.close()
        if reason:
            skipped[method] = f"{session.method.title} {reason}."
        else:
            sessions[method] = session
    if not sessions:
        raise SessionError(next(iter(skipped.values()), "No method is named."))
    return sessions, skipped


def requests_of(session: Session, items: list[Item], count: int, length: int) -> list[Ask]:
    """So many requests from the items, shuffled and in turn; lengths from half of ``length`` to it. Raises SessionError where
    none fits."""
    dice, fitting = random.Random(session.sampling.seed), []
    for item in items:
        try:
            ids = session.encode(item.prompt)
        except SessionError:  # it does not fit even alone
            continue
        if len(ids) + length <= session.loaded.context:
            fitting.append((item.task, ids))
    if not fitting:
        raise SessionError(f"No prompt of the suite leaves room for {length} tokens in the context of {session.loaded.context}.")
    dice.shuffle(fitting)
    return [Ask(*fitting[i % len(fitting)], dice.randint(max(1, int(length * SHORTEST)), length), session.sampling.seed + i)
            for i in range(count)]


def arriving(asks: Sequence[Ask], rate: float, seed: int) -> list[Ask]:
    """The asks at the times of a Poisson process with so many a second."""
    dice, at, out = random.Random(f"{seed}/{rate}"), 0.0, []
    for ask in asks:
        out.append(replace(ask, at=at))
        at += dice.expovariate(rate)
    return out
