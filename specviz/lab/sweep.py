"""Measure one method over several values of one knob. Runs of plain decoding and of all values are
shuffled, so that noise of the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from ..core import Method
from ..methods import catalogue
from ..run.request import SessionError, read_integer
from ..run.session import Session
from ..run.turns import shuffled_turns
from ..trace.metrics import Totals
from .payload import method_of, prompt_of, sampling_of
from .timed_runs import TimedRun, TimedRuns, compared, counts, speed_fields

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

MOST_VALUES = 12  # values of the knob
TURNS = 3  # runs of each value
LONGEST = 128  # tokens of an answer
WARM = 8  # tokens of the warm-up


def sweep(
    loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]
) -> Iterator[dict[str, Any] | str]:
    """Measure a method over the values of one knob.

    payload {method, knob, values, prompt, max_new_tokens, temperature?, seed?} -> {method, knob, turns,
    passes, replaced, plain_tokens_per_second, rows: [{value, tokens_per_second, low, high, block_efficiency,
    plain_tokens_per_second, walltime_speedup, speedup_low, speedup_high, named}]}, yielded after each turn.
    low, high: slowest and fastest turn, None of a single one; the speed-up, its interval and ``replaced``: as in
    trace/speed.py.
    """
    method = method_of(payload)
    probs = sampling_of(payload, 0.0)
    prompt = prompt_of(payload)
    knob, values = _values(method, payload)
    length = read_integer("max_new_tokens", payload.get("max_new_tokens", 48), 1, LONGEST)
    plain = Session(loaded, next(iter(catalogue().values())), None, probs)
    runs: dict[Any, Session] = {None: plain} | {v: Session(loaded, method, {knob: v}, probs) for v in values}
    found: dict[Any, list[TimedRun]] = {v: [] for v in runs}
    timed = TimedRuns(loaded)
    for v, session in runs.items():
        yield f"Warming up: {'plain decoding' if v is None else f'{knob} {v}'}."
        timed.run(session, prompt, WARM)
    for turn, order in enumerate(shuffled_turns(runs, TURNS), 1):
        for v in order:
            if stop():
                return
            found[v].append(timed.run(runs[v], prompt, length))
        yield report(method, knob, values, found, turn)


def _values(method: Method, payload: dict[str, Any]) -> tuple[str, list[Any]]:
    knob, values = payload.get("knob"), payload.get("values")
    known = {k.name: k for k in method.knobs}
    if not isinstance(knob, str) or knob not in known:
        raise SessionError(
            f"{method.title} has no such knob; it has {', '.join(known) or 'none'}.", "lab.knob"
        )
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_VALUES:
        raise SessionError(f"A sweep takes 1 to {MOST_VALUES} values.", "lab.values")
    try:
        return knob, list(dict.fromkeys(known[knob].read(v) for v in values))
    except ValueError as error:
        raise SessionError(f"{error}.", "lab.value") from None


def report(
    method: Method, knob: str, values: list[Any], found: dict[Any, list[TimedRun]], turn: int
) -> dict[str, Any]:
    """Return the answer to the question. found: runs by value, None for plain decoding; turn: number of
    finished turns."""
    speeds = {v: [speed for run in runs if (speed := run.speed)] for v, runs in found.items()}
    base = _middle(speeds[None])
    middles = {v: _middle(speeds[v]) for v in values}
    rows = []
    for v in values:
        middle = middles[v]
        rows.append(
            {
                "value": v,
                "tokens_per_second": middle,
                "low": min(speeds[v]) if len(speeds[v]) > 1 else None,
                "high": max(speeds[v]) if len(speeds[v]) > 1 else None,
                "block_efficiency": sum((run.totals for run in found[v]), Totals()).metrics()[
                    "block_efficiency"
                ],
                "plain_tokens_per_second": base,
                **speed_fields(compared(found[None], found[v])),
            }
        )
    return {
        "method": method.key,
        "knob": knob,
        "turns": turn,
        "plain_tokens_per_second": base,
        "rows": rows,
        **counts(run for runs in found.values() for run in runs),
    }


def _middle(values: list[float]) -> float | None:
    return median(values) if values else None
