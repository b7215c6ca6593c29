"""Load test: methods under many concurrent users, measured on one machine.

Every method gets the same arrivals: the same prompts, answer lengths, seeds and, in an open load, times.
Open load: Poisson arrivals at a rate. Closed load: each of N users sends a new request once the last one is
answered. The methods of a load take turns of a fraction of a second, each with its own clock, so that a
slow minute of the machine affects all of them. Goodput: generated tokens per second; throughput: tokens
scored by the target per second, accepted or not (Liu et al. 2406.14066)."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..core import Sampling
from ..methods import catalogue
from ..run.batch_prompts import session_unbatchable_reason
from ..run.machine import Machine
from ..run.request import SessionError, read_integer, read_number
from ..run.session import Session, find_method
from .prompt_suites import Item, read_suite, select_items
from .simulated_server import LoadResult, Server, TimedRequest

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

METHODS = ("autoregressive", "speculative", "smartspec", "tetris")
COLUMNS = [
    "load",
    "method",
    "goodput",
    "against_plain",
    "throughput",
    "first_token",
    "token_time",
    "latency",
    "batch",
    "drafted",
    "accepted",
]
MOST_USERS = 64  # limits: users of a load
MOST_REQUESTS = 10_000  # requests of a load
SHORTEST = 0.5  # of the longest answer: lengths are drawn from there to it
TURN = 0.25  # seconds on a method's clock before it is the next one's turn
WARM = 16  # tokens of the requests that are thrown away

Progress = Callable[[dict[str, Any]], None]


def load_test(
    loaded: Loaded,
    methods: Sequence[str] = METHODS,
    *,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    **asked: Any,
) -> dict[str, Any]:
    """Run a load test; return its last report: {environment, rows, said} with a row for each load and
    method, and conclusions as sentences. asked: arguments of ``measuring``.

    progress: called after each turn with method, load, done, of, tokens; cancel: set it to stop and get a
    report of what was measured. Raises SessionError."""
    stop = cancel.is_set if cancel else bool
    for report in measuring(loaded, methods, stop=stop, **asked):
        if progress and "at" in report:
            progress(report["at"])
    return report


def measuring(
    loaded: Loaded,
    methods: Sequence[str] = METHODS,
    *,
    users: Sequence[int] = (8,),
    rates: Sequence[float] = (),
    requests: Any = 16,
    suite: Any = None,
    tasks: Sequence[str] = (),
    max_new_tokens: Any = 64,
    sampling: Sampling = Sampling(),
    slots: Any = 16,
    deterministic: bool = False,
    stop: Callable[[], bool] = bool,
) -> Iterator[dict[str, Any]]:
    """Run a load test; yield a report after each turn. ``at`` in a report is the progress; the last report
    is complete and has none.

    users: closed loads, each with a number of users; rates: open loads instead, in requests per second;
    requests: number per load; slots: largest batch; stop(): called after each turn, True ends the
    measurement. Before measuring, as many short requests as the largest load has at once are run and
    discarded. A method's policy keeps what it has learned from one load to the next, as in a server that
    keeps running. Raises SessionError before anything is measured."""
    loads = _loads(users, rates)
    count, slots = (
        read_integer("requests", requests, 1, MOST_REQUESTS),
        read_integer("slots", slots, 1, MOST_USERS),
    )
    length = read_integer("max_new_tokens", max_new_tokens, 2)
    sessions, skipped = _sessions(loaded, methods, sampling, deterministic)
    asks = timed_requests(
        next(iter(sessions.values())), select_items([*read_suite(suite)], tasks), count, length
    )
    env = {
        **loaded.facts["env"],
        "target": loaded.facts["target"],
        "draft": loaded.facts["draft"],
        "requests": count,
        "max_new_tokens": length,
        "slots": slots,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "busy": load_average(),
        "suite": str(suite or ""),
        "tasks": list(tasks),
        "methods": list(sessions),
        "deterministic": deterministic,
        "users": [load for kind, load in loads if kind == "users"],
        "rates": [load for kind, load in loads if kind == "rate"],
        "packed": "batch" in loaded.capabilities,
        "skipped": skipped,
    }
    rows: list[dict[str, Any]] = []
    over = False
    machine = None if deterministic else Machine(loaded)  # it chooses the number of threads by the clock
    servers = {key: Server(session, slots, machine=machine) for key, session in sessions.items()}
    most = min(slots, max(int(load) if kind == "users" else slots for kind, load in loads))
    for server in servers.values():
        _warm(server, [replace(asks[i % count], length=min(WARM, length)) for i in range(most)], stop)
    for kind, load in loads:
        timed, name = (
            with_arrival_times(asks, load, sampling.seed) if kind == "rate" else asks,
            _named(kind, load),
        )
        with closing(_in_turns(servers, timed, int(load) if kind == "users" else 0, sampling.seed)) as turns:
            for key, served in turns:
                now = [
                    {"load": name, kind: load, "method": one, **done.row()} for one, done in served.items()
                ]
                mine, over = served[key], stop()
                at = {
                    "method": key,
                    kind: load,
                    "done": sum(a.done is not None for a in mine.answers),
                    "of": count,
                    "tokens": sum(a.tokens for a in mine.answers),
                }
                yield {
                    "environment": env,
                    "rows": with_plain_ratio(rows + now),
                    "at": at,
                    "said": break_even_sentences(with_plain_ratio(rows), count),
                }
                if over:
                    break
        rows += now
        if over:
            break
    rows = with_plain_ratio(rows)
    yield {
        "environment": {**env, "interrupted": over},
        "rows": rows,
        "said": break_even_sentences(rows, count),
    }


def load_average() -> float | None:
    """Return the system's load average over the last minute; None if the system does not report it."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def _warm(server: Server, asks: Sequence[TimedRequest], stop: Callable[[], bool]) -> None:
    """Answer all warm-up requests at once, for one-time initialisation and the policy's first
    measurements."""
    with closing(server.serve(asks, len(asks))) as rounds:
        for _ in rounds:
            if stop():
                return


def _in_turns(
    servers: dict[str, Server], asks: Sequence[TimedRequest], users: int, seed: int
) -> Generator[tuple[str, dict[str, LoadResult]]]:
    """Yield after each turn: the method that had it, and the progress of each. Turns are in shuffled
    order."""
    playing = {key: server.serve(asks, users) for key, server in servers.items()}
    served, rng = {key: LoadResult() for key in servers}, random.Random(seed)
    try:
        while playing:
            for key in rng.sample(list(playing), len(playing)):
                until = servers[key].clock.now() + TURN if served[key].rounds else TURN
                for done in playing[key]:
                    served[key] = done
                    if servers[key].clock.now() >= until:
                        break
                else:
                    del playing[key]
                yield key, served
    finally:
        for rounds in playing.values():
            rounds.close()


def _named(kind: str, load: float) -> str:
    return f"{load:g} requests/s" if kind == "rate" else f"{load:g} user{'s' if load != 1 else ''}"


def break_even_sentences(rows: list[dict[str, Any]], count: int) -> list[str]:
    """Return one sentence per drafting method, and one on the loads left out: the largest load at which the
    method is faster than plain decoding, and the smallest at which it is not. Only loads at which both
    answered all ``count`` requests are compared, and no load during which the machine was busy."""
    plain, sentences = next(iter(catalogue())), []
    busy = {row["load"] for row in rows if row.get("busy")}  # the methods of a load take turns
    whole = {
        (row["load"], row["method"]) for row in rows if row["requests"] == count and row["load"] not in busy
    }
    for key in dict.fromkeys(row["method"] for row in rows if row["method"] != plain):
        mine = [
            (row["load"], row["against_plain"])
            for row in rows
            if row["method"] == key and (row["load"], key) in whole and (row["load"], plain) in whole
        ]
        if not mine:
            continue
        title, pays = catalogue()[key].title, [ratio > 1 for _, ratio in mine]
        if all(pays):
            most, ratio = mine[-1]
            sentences.append(
                f"{title} pays at every load measured, up to {most} ({ratio:.2f} times plain decoding)."
            )
        elif not any(pays):
            best, ratio = max(mine, key=lambda at: at[1])
            sentences.append(
                f"{title} pays at no load measured: at best {ratio:.2f} times plain decoding, with {best}."
            )
        elif pays == sorted(pays, reverse=True):
            (up, gain), (no, loss) = mine[pays.index(False) - 1 : pays.index(False) + 1]
            sentences.append(
                f"{title} pays up to {up} ({gain:.2f} times plain decoding) and no longer with {no} ({loss:.2f} times)."
            )
        else:
            ratios = ", ".join(f"{load} {ratio:.2f}" for load, ratio in mine)
            sentences.append(f"{title} pays at some loads and not at others, times plain decoding: {ratios}.")
    if busy and any(row["method"] != plain for row in rows):
        left_out = ", ".join(dict.fromkeys(row["load"] for row in rows if row["load"] in busy))
        sentences.append(f"Not compared, because another process was busy during them: {left_out}.")
    return sentences


def with_plain_ratio(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with ``against_plain``: goodput divided by plain decoding's under the same load, None
    if that is unknown."""
    plain = {row["load"]: row.get("goodput") for row in rows if row["method"] == next(iter(catalogue()))}
    return [
        {
            **row,
            "against_plain": row["goodput"] / plain[row["load"]]
            if row.get("goodput") and plain.get(row["load"])
            else None,
        }
        for row in rows
    ]


def _loads(users: Sequence[int], rates: Sequence[float]) -> list[tuple[str, float]]:
    if rates:
        loads = [("rate", read_number("rate", rate)) for rate in rates]
    else:
        loads = [("users", read_integer("users", one, 1, MOST_USERS)) for one in users]
    if not loads or any(load <= 0 for _, load in loads):
        raise SessionError("A load is a number of users, or of requests a second above 0.", "load.rate")
    return sorted(set(loads), key=lambda load: load[1])


def _sessions(
    loaded: Loaded, keys: Sequence[str], sampling: Sampling, deterministic: bool
) -> tuple[dict[str, Session], dict[str, str]]:
    """Return the methods that support batching here, and why the others do not."""
    sessions, skipped = {}, {}
    for method in dict.fromkeys(find_method(key).key for key in keys):
        try:
            session = Session(loaded, method, None, sampling, deterministic=deterministic)
        except SessionError as error:
            skipped[method] = str(error)
            continue
        reason = session_unbatchable_reason(session)
        if reason:
            skipped[method] = f"{session.method.title} {reason}."
        else:
            sessions[method] = session
    if not sessions:
        raise SessionError(next(iter(skipped.values()), "No method is named."), "method.missing")
    return sessions, skipped


def timed_requests(session: Session, items: list[Item], count: int, length: int) -> list[TimedRequest]:
    """Return ``count`` requests from the prompts, shuffled and repeated as needed, with answer lengths from
    length / 2 to length. Raises SessionError if no prompt fits into the context."""
    rng, fitting = random.Random(session.sampling.seed), []
    for item in items:
        try:
            ids = session.encode(item.prompt)
        except SessionError:  # it does not fit even without other requests
            continue
        if len(ids) + length <= session.loaded.context:
            fitting.append((item.task, ids))
    if not fitting:
        raise SessionError(
            f"No prompt of the suite leaves room for {length} tokens in the context of {session.loaded.context}.",
            "suite.too_long",
        )
    rng.shuffle(fitting)
    return [
        TimedRequest(
            task, ids, rng.randint(max(1, int(length * SHORTEST)), length), session.sampling.seed + i
        )
        for i in range(count)
        for task, ids in [fitting[i % len(fitting)]]
    ]


def with_arrival_times(asks: Sequence[TimedRequest], rate: float, seed: int) -> list[TimedRequest]:
    """Return the requests with random arrival times: a Poisson process with ``rate`` requests per second."""
    rng = random.Random(f"{seed}/{rate}")
    at = 0.0
    out = []
    for ask in asks:
        out.append(replace(ask, arrival=at))
        at += rng.expovariate(rate)
    return out
