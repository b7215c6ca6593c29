"""Race several methods over the user's prompts: medians over prompts with confidence intervals, and all runs.

For each prompt, plain decoding and the methods run once in shuffled order, so that noise of the machine
affects all of them. A speed-up compares runs of the same prompt. The interval of a median is
distribution-free: order statistics by the binomial distribution.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import Method, Sampling
from ..methods import catalogue
from ..run.request import SessionError, read_integer
from ..run.session import Session, find_method
from ..run.turns import shuffled_turns
from ..trace.events import Event
from ..trace.recorder import Recorder
from ..trace.speed import median_interval
from .pass_costs import machine
from .payload import prompt_of, sampling_of
from .timed_runs import TimedRun, TimedRuns, compared, counts, speed_fields

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

MOST_PROMPTS = 24  # limits of a question
MOST_METHODS = 6  # plain decoding and five more
MOST_RUNS = 400  # of all seeds, prompts and methods
MOST_SEEDS = 5
LONGEST = 128  # tokens of an answer
WARM = 8  # tokens of the warm-up
MOST_TRACES = 6_000_000  # letters of all traces of an answer


def prompt_set(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Measure methods on a set of prompts.

    payload {prompts: [text], methods: [key or {method, knobs}], max_new_tokens?, temperature?, seed?, seeds?,
    from?, traces?} -> {rows, runs, done, of, passes, replaced, machine}, yielded after each prompt; a stopped
    measurement returns what was measured. seeds: that many draws of each prompt, the first with ``seed``;
    from: the number of prompts and draws that were measured before, so that the rest is measured; traces: true
    to get ``traces`` with the last answer: [{prompt, seed, file}], a trace of all methods on a prompt as
    gzipped JSON Lines in base64, as many as fit.
    rows: {method, title, tokens_per_second, walltime_speedup, block_efficiency, rows_per_pass (tokens in a
    target pass, drafted ones and the root): [median, low, high] or null, prompts, confidence, named}; runs:
    {prompt, method, tokens, seconds, tokens_per_second, block_efficiency, rows_per_pass, walltime_speedup,
    speedup_low, speedup_high, named}; the speed-up, its interval and ``replaced``: as in trace/speed.py."""
    prompts, lanes = _prompts(payload), _lanes(payload)
    probs = sampling_of(payload, 0.0)
    length = read_integer("max_new_tokens", payload.get("max_new_tokens", 48), 1, LONGEST)
    turns = _turns(payload, len(prompts), len(lanes), probs)
    timed = TimedRuns(loaded)
    for lane in lanes:
        yield f"Warming up: {lane.title}."
        timed.run(lane.session(loaded, probs), prompts[0], WARM)
    runs: list[dict[str, Any]] = []
    every: list[TimedRun] = []
    traces = _Traces(loaded)
    answer: dict[str, Any] = {}
    begun = read_integer("from", payload.get("from", 0), 0, len(turns) - 1)
    orders = shuffled_turns(lanes, len(turns) - begun)
    for done, ((number, seed), order) in enumerate(zip(turns[begun:], orders), begun + 1):
        found: dict[str, TimedRun] = {}
        for lane in order:
            if stop():
                break
            session = lane.session(loaded, replace(probs, seed=seed))
            watch = traces.lane(lanes.index(lane)) if payload.get("traces") is True else iter
            found[lane.key] = timed.run(session, prompts[number], length, watch)
        if len(found) < len(lanes):
            break
        every += found.values()
        traces.end(number, seed)
        runs += [_run(number, seed, lane, found) for lane in lanes]
        answer = {
            "rows": [_row(lane, runs) for lane in lanes],
            "runs": runs,
            "done": done,
            "of": len(turns),
            **counts(every),
            "machine": machine(loaded),
        }
        yield answer
    if traces.files:
        yield answer | {"traces": traces.files}


class _Traces:
    """Traces of the runs of a set, one of all lanes for each prompt and draw."""

    def __init__(self, loaded: Loaded):
        self._loaded = loaded
        self._records: dict[int, list[dict[str, Any]]] = {}
        self._letters = 0
        self.files: list[dict[str, Any]] = []

    def lane(self, number: int) -> Callable[[Iterable[Event]], Iterator[Event]]:
        """Return what records the events of a lane while they pass."""
        recorder = Recorder(number, self._loaded.token_bytes, self._loaded.token_bytes.special)
        records = self._records[number] = []

        def watch(events: Iterable[Event]) -> Iterator[Event]:
            for event in events:
                records.extend(recorder.take(event))
                yield event

        return watch

    def end(self, prompt: int, seed: int) -> None:
        """Keep the records of a prompt and draw as a file, if there are any and they fit."""
        lines = [json.dumps(r) + "\n" for _, records in sorted(self._records.items()) for r in records]
        self._records = {}
        file = b64encode(gzip.compress("".join(lines).encode(), mtime=0)).decode() if lines else ""
        if file and self._letters + len(file) <= MOST_TRACES:
            self._letters += len(file)
            self.files.append({"prompt": prompt, "seed": seed, "file": file})


class _Lane(NamedTuple):
    """A method with its knobs. key: the method's, with the knobs that were given."""

    key: str
    title: str
    method: Method
    knobs: dict[str, Any]

    def session(self, loaded: Loaded, probs: Sampling) -> Session:
        return Session(loaded, self.method, self.knobs or None, probs)


def _turns(payload: dict[str, Any], prompts: int, lanes: int, probs: Sampling) -> list[tuple[int, int]]:
    """Return (prompt, seed) of each turn: all prompts with the first seed, then with the next. Greedy answers
    have one draw. Raises SessionError where that is too much for one question."""
    asked = read_integer("seeds", payload.get("seeds", 1), 1, MOST_SEEDS)
    seeds = asked if probs.temperature > 0 else 1
    if prompts * seeds * lanes > MOST_RUNS:
        raise SessionError(f"That is {prompts * seeds * lanes} runs; at most {MOST_RUNS}.", "lab.runs")
    return [(number, probs.seed + draw) for draw in range(seeds) for number in range(prompts)]


def _run(number: int, seed: int, lane: _Lane, found: dict[str, TimedRun]) -> dict[str, Any]:
    ours, plain = found[lane.key], found[_plain().key]
    totals = ours.totals
    return {
        "prompt": number,
        "seed": seed,
        "method": lane.key,
        "tokens": totals.tokens,
        "seconds": totals.seconds,
        "tokens_per_second": ours.speed,
        "block_efficiency": totals.metrics()["block_efficiency"],
        "rows_per_pass": (totals.drafted + totals.rounds) / totals.rounds if totals.rounds else None,
        **speed_fields(compared([plain], [ours])),
    }


def _row(lane: _Lane, runs: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [run for run in runs if run["method"] == lane.key]
    row: dict[str, Any] = {
        "method": lane.key,
        "title": lane.title,
        "prompts": len(mine),
        "confidence": None,
        "named": any(run["named"] for run in mine),
    }
    for figure in ("block_efficiency", "rows_per_pass", "tokens_per_second", "walltime_speedup"):
        values = [run[figure] for run in mine if run[figure] is not None]
        row[figure] = None
        if values:
            low, high, row["confidence"] = median_interval(values)
            row[figure] = [median(values), low, high]
    return row


def _plain() -> Method:
    return next(iter(catalogue().values()))


def _prompts(payload: dict[str, Any]) -> list[str]:
    given = payload.get("prompts")
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_PROMPTS:
        raise SessionError(f"Give 1 to {MOST_PROMPTS} prompts.", "lab.prompts")
    return [prompt_of({"prompt": one}) for one in given]


def _lanes(payload: dict[str, Any]) -> list[_Lane]:
    given = payload.get("methods")
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_METHODS:
        raise SessionError(f"Name 1 to {MOST_METHODS} methods.", "lab.methods")
    lanes = {lane.key: lane for lane in map(_lane, [_plain().key, *given])}
    return list(lanes.values())


def _lane(given: Any) -> _Lane:
    one: Any = {"method": given} if isinstance(given, str) else given
    if not isinstance(one, dict) or not isinstance(one.get("method"), str):
        raise SessionError(f"Name 1 to {MOST_METHODS} methods.", "lab.methods")
    method = find_method(one["method"])
    try:
        knobs = method.read_knobs(one.get("knobs") or {})
    except (ValueError, AttributeError, TypeError) as error:
        raise SessionError(f"{error}.", "lab.value") from None
    usual = {knob.name: knob.default for knob in method.knobs}
    changed = {name: value for name, value in knobs.items() if value != usual.get(name)}
    words = ", ".join(f"{name} {value}" for name, value in changed.items())
    apart = " ".join(f"{name}={value}" for name, value in changed.items())
    return _Lane(
        " ".join(filter(None, (method.key, apart))),
        ", ".join(filter(None, (method.title, words))),
        method,
        changed,
    )
