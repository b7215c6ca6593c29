"""Find the fastest lane of a race, if the difference is larger than noise: the statistic of trace/speed.py,
which the viewer uses, too (assets/viewer/verdict.js)."""

from __future__ import annotations

from statistics import median
from typing import Any

from ..methods import catalogue
from ..trace.speed import LaneTimes, lane_times, speedup

LEAST = 2  # runs per lane needed for a winner


def compare(lanes: list[dict[str, Any]], baseline: str) -> dict[str, Any]:
    """Rank lanes by speed.

    lanes: [{key, title, times, ...}], with ``times`` of type LaneTimes -> {rows: [{key, title, ...,
    tokens_per_second, low, high, walltime_speedup, speedup_low, speedup_high, named, replaced, passes, runs}],
    winner, sentence}, fastest first. winner: key of the first row, null if the difference may be noise; low,
    high: slowest and fastest run; baseline: key of the lane to which speed-ups relate; they are null where no
    speed is named. All lanes count with the same number of runs. Other fields of a lane are copied to its
    row."""
    bounds = {key for key, method in catalogue().items() if method.bound}
    measured = [(lane, lane["times"]) for lane in lanes if lane["times"].runs()]
    most = min((len(times.runs()) for lane, times in measured if lane["key"] not in bounds), default=1)
    measured = [(lane, _first(times, most)) for lane, times in measured]
    plain = next((times for lane, times in measured if lane["key"] == baseline), None)
    ranked = sorted(
        ((_row(lane, times, plain, lane["key"] in bounds), times) for lane, times in measured),
        key=lambda pair: -pair[0]["tokens_per_second"],
    )
    limit = max((row["tokens_per_second"] for row, _ in ranked if row["bound"]), default=None)
    for row, _ in ranked:
        row["of_possible"] = row["tokens_per_second"] / limit if limit else None
    running = [(row, times) for row, times in ranked if not row["bound"]]
    winner, sentence = _verdict([row for row, _ in running], [times for _, times in running], baseline)
    return {"rows": [row for row, _ in ranked], "winner": winner, "sentence": sentence}


def lanes_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the finished lanes of a trace, as ``compare`` takes them. Server lanes are left out, because
    their times are measured by another clock."""
    heads = {r["lane"]: r for r in records if r["type"] == "header" and r.get("clock") != "client"}
    ends = [r for r in records if r["type"] == "done" and r["totals"].get("tokens") and r["lane"] in heads]
    return [
        {
            "lane": r["lane"],
            "key": heads[r["lane"]]["method"]["key"],
            "title": heads[r["lane"]]["method"]["title"],
            "knobs": heads[r["lane"]].get("knobs", {}),
            "times": lane_times(records, r["lane"]),
        }
        for r in ends
    ]


def _first(times: LaneTimes, most: int) -> LaneTimes:
    """Return the first ``most`` runs."""
    return LaneTimes(times.rounds, times.repeats[: most - bool(times.rounds)], times.tokens_per_pass)


def _row(lane: dict[str, Any], times: LaneTimes, plain: LaneTimes | None, bound: bool) -> dict[str, Any]:
    speeds = [tokens / seconds for tokens, seconds in times.runs()]
    found = speedup(plain, _unbound(times) if bound else times) if plain else None
    named = bool(found and found.named)
    return {
        **{name: value for name, value in lane.items() if name != "times"},
        "tokens_per_second": median(speeds),
        "low": min(speeds),
        "high": max(speeds),
        "runs": len(speeds),
        "walltime_speedup": found.value if found and named else None,
        "speedup_low": found.low if found and named else None,
        "speedup_high": found.high if found and named else None,
        "named": named,
        "replaced": found.replaced if found else 0,
        "passes": found.of if found else 0,
        "bound": bound,
    }


def _unbound(times: LaneTimes) -> LaneTimes:
    """Return the times of a lane whose speed its tokens per pass do not limit."""
    return LaneTimes(times.rounds, times.repeats)


OVER = "over {runs} runs"


UNNAMED = "The times of this run say too little about speed"


def _verdict(rows: list[dict[str, Any]], times: list[LaneTimes], baseline: str) -> tuple[str | None, str]:
    if len(rows) < 2:
        return None, ""
    first, second = rows[:2]
    ahead = speedup(_unbound(times[1]), _unbound(times[0]))
    known = {row["key"] for row in rows if row["named"] or row["key"] == baseline}
    against_plain = any(row["key"] == baseline for row in rows)
    if not ahead.named or (against_plain and not {first["key"], second["key"]} <= known):
        return None, f"{UNNAMED}: compare the tokens per pass."
    speed = f"{first['tokens_per_second']:.0f} tokens/s"
    ratio = (
        f", {first['walltime_speedup']:.2f} times plain decoding{_interval(first)}"
        if first["walltime_speedup"] and first["key"] != baseline
        else ""
    )
    if min(first["runs"], second["runs"]) < LEAST:
        return None, (
            f"Fastest in this one run: {first['title']}, {speed}{ratio}. "
            "Set Repeats to 3 to see whether that is more than noise."
        )
    over = OVER.format(runs=first["runs"])
    if not ahead.clear:
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


def _interval(row: dict[str, Any]) -> str:
    low, high = row["speedup_low"], row["speedup_high"]
    return f" ({low:.2f} to {high:.2f})" if low is not None and low < high else ""


def _range(row: dict[str, Any]) -> str:
    return f"{row['low']:.0f} to {row['high']:.0f}"
