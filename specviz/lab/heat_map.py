"""Measured speed of a method over draft length and temperature, and the speed predicted from its acceptance
rate.

Runs of all cells and of plain decoding are shuffled, so that noise of the machine affects all of them. The
predicted speed of a cell is the expected number of tokens per round, (1 - a^(g+1)) / (1 - a) for acceptance
rate a at this temperature and draft length g, over the measured seconds of a round at this length
(Leviathan et al. 2211.17192)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..core import Knob, Method, Sampling
from ..core.chip_model import tokens_per_round
from ..methods import catalogue
from ..run.request import SessionError, read_integer
from ..run.session import Session
from ..run.turns import shuffled_turns
from ..trace.metrics import Totals
from .payload import method_of, prompt_of, sampling_of
from .timed_runs import TimedRun, TimedRuns, compared, counts, speed_fields

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

LENGTH_KNOBS = (
    "gamma",
    "depth",
    "block",
    "window",
    "length",
    "most",
)  # knobs that set the draft length, in this order
LENGTHS = (1, 2, 4, 8)  # draft lengths by default
TEMPERATURES = (0.0, 0.5, 1.0)  # temperatures by default
MOST_LENGTHS = 8  # limits of a question
MOST_TEMPERATURES = 6
TURNS = 2  # runs of each cell
LONGEST = 128  # tokens of an answer
WARM = 8  # tokens of the warm-up
COLUMNS = (
    "draft_length",
    "temperature",
    "tokens_per_second",
    "walltime_speedup",
    "speedup_low",
    "speedup_high",
    "named",
    "predicted_speedup",
    "block_efficiency",
    "acceptance_rate",
)


def heat_map(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Measure speed over draft length and temperature.

    payload {method, prompt, lengths?, temperatures?, max_new_tokens?, seed?} -> {method, knob, lengths,
    temperatures, cells, done, of, passes, replaced, csv}, yielded after each run. cells: a dictionary of
    COLUMNS per pair, those not measured yet with null figures; the speed-up, its interval and ``replaced``:
    as in trace/speed.py. A stop ends with what was measured.
    """
    method, prompt = method_of(payload), prompt_of(payload)
    knob = length_knob(method)
    lengths = _numbers(payload, "lengths", LENGTHS, MOST_LENGTHS, lambda value: _knob_value(knob, value))
    temperatures = _numbers(
        payload,
        "temperatures",
        TEMPERATURES,
        MOST_TEMPERATURES,
        lambda value: sampling_of(payload | {"temperature": value}, 0.0).temperature,
    )
    if method.exactness == "greedy only":
        temperatures = [0.0]
    longest = read_integer("max_new_tokens", payload.get("max_new_tokens", 48), 1, LONGEST)
    plain = next(iter(catalogue().values()))

    def session(length: int | None, temperature: float) -> Session:
        probs: Sampling = sampling_of(payload | {"temperature": temperature}, 0.0)
        return Session(
            loaded,
            plain if length is None else method,
            None if length is None else {knob.name: length},
            probs,
        )

    runs = {(length, t): session(length, t) for t in temperatures for length in (None, *lengths)}
    found: dict[Any, list[TimedRun]] = {key: [] for key in runs}
    timed = TimedRuns(loaded)
    for length, t in ((None, temperatures[0]), (lengths[0], temperatures[0])):
        yield f"Warming up: {plain.title if length is None else method.title}."
        timed.run(runs[length, t], prompt, WARM)
    done = 0
    for turn in shuffled_turns(runs, TURNS):
        for key in turn:
            if stop():
                return
            found[key].append(timed.run(runs[key], prompt, longest))
            done += 1
            yield report(method, knob, lengths, temperatures, found, done, TURNS * len(runs))


def length_knob(method: Method) -> Knob:
    """Return the knob that sets a method's draft length. Raises SessionError if there is none."""
    known = {
        knob.name: knob
        for knob in method.knobs
        if isinstance(knob.default, int) and not isinstance(knob.default, bool)
    }
    for name in LENGTH_KNOBS:
        if name in known:
            return known[name]
    raise SessionError(f"{method.title} has no knob for the draft length.", "lab.no_draft_length")


def report(
    method: Method,
    knob: Knob,
    lengths: list[int],
    temperatures: list[float],
    found: dict[Any, list[TimedRun]],
    done: int,
    of: int,
) -> dict[str, Any]:
    """Return the answer to the question. found: runs by (draft length, temperature), length None for plain
    decoding; done, of: finished and planned runs."""
    rounds = {
        length: _mean(
            [
                totals.steady_seconds / totals.rounds
                for t in temperatures
                for (totals,) in found[length, t]
                if totals.rounds
            ]
        )
        for length in lengths
    }
    cells = []
    for t in temperatures:
        base = _speed(found[None, t])
        accepted = [
            sum(getattr(one, name) for length in lengths for (one,) in found[length, t])
            for name in ("accepted", "tried")
        ]
        rate = accepted[0] / accepted[1] if accepted[1] else None
        for length in lengths:
            runs = found[length, t]
            ours, mine = _speed(runs), sum((totals for (totals,) in runs), Totals()).metrics()
            cost = rounds[length] if runs else None
            predicted = (
                tokens_per_round(min(rate, 0.999), length) / cost / base
                if rate is not None and base and cost
                else None
            )
            cells.append(
                {
                    "draft_length": length,
                    "temperature": t,
                    "tokens_per_second": ours,
                    **speed_fields(compared(found[None, t], runs)),
                    "predicted_speedup": predicted,
                    "block_efficiency": mine["block_efficiency"],
                    "acceptance_rate": mine["acceptance_rate"],
                }
            )
    return {
        "method": method.key,
        "knob": knob.name,
        "lengths": lengths,
        "temperatures": temperatures,
        "cells": cells,
        "done": done,
        "of": of,
        "csv": to_csv(cells),
        **counts(run for runs in found.values() for run in runs),
    }


def to_csv(cells: Sequence[Mapping[Any, Any]]) -> str:
    """Return the cells as CSV text."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    return out.getvalue()


def _numbers(
    payload: dict[str, Any], name: str, usual: tuple, most: int, read: Callable[[Any], Any]
) -> list[Any]:
    values = payload.get(name, list(usual))
    if not isinstance(values, list) or not 1 <= len(values) <= most:
        raise SessionError(f"The {name} must be a list of 1 to {most} numbers.", "lab.numbers")
    return sorted(set(map(read, values)))


def _knob_value(knob: Knob, value: Any) -> Any:
    try:
        return knob.read(value)
    except ValueError as error:
        raise SessionError(f"{error}.", "lab.value") from None


def _speed(runs: list[TimedRun]) -> float | None:
    return median([speed for run in runs if (speed := run.speed)] or [0.0]) or None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
