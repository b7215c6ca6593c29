"""Find the fastest lane of a race, if the difference is larger than noise, from the runs of each lane,
[[tokens, seconds], ...].

The i-th runs of two lanes form a pair, because they were measured one after the other. The winner has to be
faster in every pair, by more than the spread of the lanes' runs or, in the closest pair, by the factor
``CLOSE``. The viewer uses the same rule (assets/viewer/verdict.js)."""

from __future__ import annotations

from statistics import median
from typing import Any

from ..methods import catalogue

LEAST = 2  # runs per lane needed for an interval
CLOSE = 1.05  # speed ratio below which there is no difference


def compare(lanes: list[dict[str, Any]], baseline: str) -> dict[str, Any]:
    """Rank lanes by speed.

    lanes: [{key, title, runs, ...}] -> {rows: [{key, title, ..., tokens_per_second, low, high,
    walltime_speedup, runs}], winner, sentence}, fastest first. winner: key of the first row, null if the
    difference may be noise; low, high: slowest and fastest run; baseline: key of the lane to which
    speed-ups relate. All lanes count with the same number of runs. Other fields of a lane are copied to its
    row."""
    measured = [(lane, of) for lane in lanes if (of := _speeds(lane["runs"]))]
    most = min((len(of) for _, of in measured), default=0)
    plain = next((of[:most] for lane, of in measured if lane["key"] == baseline), None)
    ranked = sorted(
        ((_row(lane, of[:most], plain), of[:most]) for lane, of in measured),
        key=lambda pair: -pair[0]["tokens_per_second"],
    )
    bounds = {key for key, method in catalogue().items() if method.bound}
    limit = max((row["tokens_per_second"] for row, _ in ranked if row["key"] in bounds), default=None)
    for row, _ in ranked:
        row["bound"], row["of_possible"] = (
            row["key"] in bounds,
            row["tokens_per_second"] / limit if limit else None,
        )
    rows = [row for row, _ in ranked]
    running = [(row, of) for row, of in ranked if not row["bound"]]
    winner, sentence = _verdict([row for row, _ in running], [of for _, of in running], baseline)
    return {"rows": rows, "winner": winner, "sentence": sentence}


def lanes_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the finished lanes of a trace, as ``compare`` takes them. Server lanes are left out, because
    their times are measured by another clock. Turns in which other processes took the CPU are left out if
    there are others."""
    heads = {r["lane"]: r for r in records if r["type"] == "header" and r.get("clock") != "client"}
    ends = [r for r in records if r["type"] == "done" and r["totals"].get("tokens") and r["lane"] in heads]
    busy = {r["lane"] for r in records if r["type"] == "check" and r["kind"] == "busy"}
    turns = {
        r["lane"]: [r["totals"] | {"busy": r["lane"] in busy}, *r["totals"].get("repeats", ())] for r in ends
    }
    disturbed = {i for runs in turns.values() for i, run in enumerate(runs) if run.get("busy")}
    least = min(map(len, turns.values()), default=0)
    kept = [i for i in range(least) if i not in disturbed] or range(least)
    return [
        {
            "lane": r["lane"],
            "key": heads[r["lane"]]["method"]["key"],
            "title": heads[r["lane"]]["method"]["title"],
            "knobs": heads[r["lane"]].get("knobs", {}),
            "runs": [[turns[r["lane"]][i]["tokens"], turns[r["lane"]][i]["seconds"]] for i in kept],
        }
        for r in ends
    ]


def _row(lane: dict[str, Any], speeds: list[float], plain: list[float] | None) -> dict[str, Any]:
    return {
        **lane,
        "tokens_per_second": median(speeds),
        "low": min(speeds),
        "high": max(speeds),
        "runs": len(speeds),
        "walltime_speedup": median(_ratios(speeds, plain)) if plain else None,
    }


def _speeds(runs: list[list[float]]) -> list[float]:
    return [tokens / seconds for tokens, seconds in runs if tokens and seconds > 0]


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [a / b for a, b in zip(ours, theirs)]


OVER = "over {runs} runs"


def _verdict(rows: list[dict[str, Any]], speeds: list[list[float]], baseline: str) -> tuple[str | None, str]:
    if len(rows) < 2:
        return None, ""
    first, second = rows[:2]
    speed = f"{first['tokens_per_second']:.0f} tokens/s"
    ratio = (
        f", {first['walltime_speedup']:.2f} times plain decoding"
        if first["walltime_speedup"] and first["key"] != baseline
        else ""
    )
    if min(first["runs"], second["runs"]) < LEAST:
        return None, (
            f"Fastest in this one run: {first['title']}, {speed}{ratio}. "
            "Set Repeats to 3 to see whether that is more than noise."
        )
    over = OVER.format(runs=first["runs"])
    least = min(_ratios(speeds[0], speeds[1]))
    if least <= 1 or (first["low"] <= second["high"] and least < CLOSE):
        return None, (
            f"Too close to call: {first['title']} ({speed}) and {second['title']} "
            f"({second['tokens_per_second']:.0f}) are not apart in every pair {over}; the difference is noise."
        )
    if first["key"] == baseline:
        return (
            baseline,
            f"Plain decoding is fastest here, {speed} ({_range(first)} {over}): no method paid for itself.",
        )
    return first["key"], f"{first['title']} is fastest: {speed} ({_range(first)} {over}){ratio}."


def _range(row: dict[str, Any]) -> str:
    return f"{row['low']:.0f} to {row['high']:.0f}"
