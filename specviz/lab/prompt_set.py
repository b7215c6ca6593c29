"""Race several methods over the user's prompts: medians over prompts with confidence intervals, and all runs.

For each prompt, plain decoding and the methods run once in shuffled order, so that noise of the machine
affects all of them. A speed-up compares runs of the same prompt. The interval of a median is
distribution-free: order statistics by the binomial distribution.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import comb
from statistics import median
from typing import TYPE_CHECKING, Any

from ..core import Method
from ..methods import catalogue
from ..run.request import SessionError, read_integer
from ..run.session import Session, find_method
from .pass_costs import machine
from .payload import prompt_of, sampling_of
from .timed_runs import TimedRun, TimedRuns

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

MOST_PROMPTS = 24  # limits of a question
MOST_METHODS = 4
LONGEST = 128  # tokens of an answer
WARM = 8  # tokens of the warm-up
CONFIDENCE = 0.95


def prompt_set(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Measure methods on a set of prompts.

    payload {prompts: [text], methods: [key], max_new_tokens?, temperature?, seed?} -> {rows, runs, done,
    of, machine}, yielded after each prompt; a stopped measurement returns what was measured. rows: {method,
    title, tokens_per_second, walltime_speedup, block_efficiency: [median, low, high] or null, prompts,
    confidence, busy}; runs: {prompt, method, tokens, seconds, tokens_per_second, block_efficiency,
    walltime_speedup, busy}. busy of a run: other processes took the CPU during it or during plain
    decoding's run; its times are left out of the medians. busy of a row: all of its runs were busy."""
    prompts, methods = _prompts(payload), _methods(payload)
    probs = sampling_of(payload, 0.0)
    length = read_integer("max_new_tokens", payload.get("max_new_tokens", 48), 1, LONGEST)
    sessions = [(method, Session(loaded, method, None, probs)) for method in methods]
    timed = TimedRuns(loaded)
    for method, session in sessions:
        yield f"Warming up: {method.title}."
        timed.run(session, prompts[0], WARM)
    rng, runs = random.Random(0), []
    for number, prompt in enumerate(prompts):
        found: dict[str, TimedRun] = {}
        for method, session in rng.sample(sessions, len(sessions)):
            if stop():
                return
            found[method.key] = timed.run(session, prompt, length)
        runs += [_run(number, method, found) for method in methods]
        yield {
            "rows": [_row(method, runs) for method in methods],
            "runs": runs,
            "done": number + 1,
            "of": len(prompts),
            "machine": machine(loaded),
        }


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Return (low, high, confidence) of the median: the narrowest pair of order statistics with at least
    CONFIDENCE, else smallest and largest value."""
    ordered, count = sorted(values), len(values)
    best = 0
    for k in range(1, (count + 1) // 2):
        if _covered(count, k) >= CONFIDENCE:
            best = k
    return ordered[best], ordered[count - 1 - best], _covered(count, best)


def _covered(count: int, k: int) -> float:
    """Return the probability that the median lies between the (k+1)-th smallest and the (k+1)-th largest of
    ``n`` values."""
    return 1 - 2 * sum(comb(count, i) for i in range(k + 1)) / 2**count


def _run(number: int, method: Method, found: dict[str, TimedRun]) -> dict[str, Any]:
    ours, plain = found[method.key], found[_plain().key]
    totals = ours.totals
    speed = ours.speed
    base = plain.speed
    return {
        "prompt": number,
        "method": method.key,
        "tokens": totals.tokens,
        "seconds": totals.seconds,
        "tokens_per_second": speed,
        "block_efficiency": totals.metrics()["block_efficiency"],
        "walltime_speedup": speed / base if speed and base else None,
        "busy": ours.disturbed or plain.disturbed,
    }


def _row(method: Method, runs: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [run for run in runs if run["method"] == method.key]
    counted = [run for run in mine if not run["busy"]]
    row: dict[str, Any] = {
        "method": method.key,
        "title": method.title,
        "prompts": len(mine),
        "confidence": None,
        "busy": not counted,
    }
    for figure in ("block_efficiency", "tokens_per_second", "walltime_speedup"):
        values = [
            run[figure]
            for run in (mine if figure == "block_efficiency" else counted or mine)
            if run[figure] is not None
        ]
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
