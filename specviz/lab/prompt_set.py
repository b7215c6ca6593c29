"""Race several methods over the user's prompts: medians over prompts with confidence intervals, and all runs.

For each prompt, plain decoding and the methods run once in shuffled order, so that noise of the machine
affects all of them. A speed-up compares runs of the same prompt. The interval of a median is
distribution-free: order statistics by the binomial distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from ..core import Method
from ..methods import catalogue
from ..run.request import SessionError, read_integer
from ..run.session import Session, find_method
from ..run.turns import shuffled_turns
from ..trace.speed import median_interval
from .pass_costs import machine
from .payload import prompt_of, sampling_of
from .timed_runs import TimedRun, TimedRuns, compared, counts, speed_fields

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

MOST_PROMPTS = 24  # limits of a question
MOST_METHODS = 4
LONGEST = 128  # tokens of an answer
WARM = 8  # tokens of the warm-up


def prompt_set(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Measure methods on a set of prompts.

    payload {prompts: [text], methods: [key], max_new_tokens?, temperature?, seed?} -> {rows, runs, done,
    of, passes, replaced, machine}, yielded after each prompt; a stopped measurement returns what was measured.
    rows: {method, title, tokens_per_second, walltime_speedup, block_efficiency: [median, low, high] or null,
    prompts, confidence, named}; runs: {prompt, method, tokens, seconds, tokens_per_second, block_efficiency,
    walltime_speedup, speedup_low, speedup_high, named}; the speed-up, its interval and ``replaced``: as in
    trace/speed.py."""
    prompts, methods = _prompts(payload), _methods(payload)
    probs = sampling_of(payload, 0.0)
    length = read_integer("max_new_tokens", payload.get("max_new_tokens", 48), 1, LONGEST)
    sessions = [(method, Session(loaded, method, None, probs)) for method in methods]
    timed = TimedRuns(loaded)
    for method, session in sessions:
        yield f"Warming up: {method.title}."
        timed.run(session, prompts[0], WARM)
    runs: list[dict[str, Any]] = []
    every: list[TimedRun] = []
    for number, (prompt, turn) in enumerate(zip(prompts, shuffled_turns(sessions, len(prompts)))):
        found: dict[str, TimedRun] = {}
        for method, session in turn:
            if stop():
                return
            found[method.key] = timed.run(session, prompt, length)
            every.append(found[method.key])
        runs += [_run(number, method, found) for method in methods]
        yield {
            "rows": [_row(method, runs) for method in methods],
            "runs": runs,
            "done": number + 1,
            "of": len(prompts),
            **counts(every),
            "machine": machine(loaded),
        }


def _run(number: int, method: Method, found: dict[str, TimedRun]) -> dict[str, Any]:
    ours, plain = found[method.key], found[_plain().key]
    totals = ours.totals
    return {
        "prompt": number,
        "method": method.key,
        "tokens": totals.tokens,
        "seconds": totals.seconds,
        "tokens_per_second": ours.speed,
        "block_efficiency": totals.metrics()["block_efficiency"],
        **speed_fields(compared([plain], [ours])),
    }


def _row(method: Method, runs: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [run for run in runs if run["method"] == method.key]
    row: dict[str, Any] = {
        "method": method.key,
        "title": method.title,
        "prompts": len(mine),
        "confidence": None,
        "named": any(run["named"] for run in mine),
    }
    for figure in ("block_efficiency", "tokens_per_second", "walltime_speedup"):
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


def _methods(payload: dict[str, Any]) -> list[Method]:
    given = payload.get("methods")
    if (
        not isinstance(given, list)
        or not 1 <= len(given) <= MOST_METHODS
        or not all(isinstance(key, str) for key in given)
    ):
        raise SessionError(f"Name 1 to {MOST_METHODS} methods.", "lab.methods")
    methods = [find_method(key) for key in dict.fromkeys(given)]
    return [_plain(), *(method for method in methods if method.key != _plain().key)]
