"""Who won a race, and is that more than noise? From the runs of each lane, [[tokens, seconds], ...]; no torch, no clock."""
from __future__ import annotations

from statistics import median
from typing import Any

LEAST = 2  # runs of a lane from which an interval can be told


def compare(lanes: list[dict[str, Any]], baseline: str) -> dict[str, Any]:
    """lanes: [{key, title, runs}] -> {rows: [{key, title, tokens_per_second, low, high, walltime_speedup, runs}], fastest first,
    winner: key or null where nothing can be said, sentence}. low, high: slowest and fastest run."""
    rows = [row for row in map(_row, lanes) if row]
    plain = next((row["tokens_per_second"] for row in rows if row["key"] == baseline), None)
    for row in rows:
        row["walltime_speedup"] = row["tokens_per_second"] / plain if plain else None
    rows.sort(key=lambda row: -row["tokens_per_second"])
    winner, sentence = _verdict(rows, baseline)
    return {"rows": rows, "winner": winner, "sentence": sentence}


def lanes_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lanes of a trace, as ``compare`` takes them; those that finished."""
    heads = {r["lane"]: r["method"] for r in records if r["type"] == "header"}
    ends = [r for r in records if r["type"] == "done" and r["totals"].get("tokens") and r["lane"] in heads]
    return [{"key": heads[r["lane"]]["key"], "title": heads[r["lane"]]["title"],
             "runs": [[run["tokens"], run["seconds"]] for run in (r["totals"], *r["totals"].get("repeats", ()))]} for r in ends]


def _row(lane: dict[str, Any]) -> dict[str, Any] | None:
    speeds = [tokens / seconds for tokens, seconds in lane["runs"] if tokens and seconds > 0]
    if not speeds:
        return None
    return {"key": lane["key"], "title": lane["title"], "tokens_per_second": median(speeds), "low": min(speeds),
            "high": max(speeds), "runs": len(speeds)}


def _verdict(rows: list[dict[str, Any]], baseline: str) -> tuple[str | None, str]:
    if len(rows) < 2:
        return None, ""
    first, second = rows[:2]
    speed = f"{first['tokens_per_second']:.0f} tokens/s"
    ratio = f", {first['walltime_speedup']:.2f} times plain decoding" if first["walltime_speedup"] and first["key"] != baseline else ""
    if min(first["runs"], second["runs"]) < LEAST:
        return None, (f"Fastest in this one run: {first['title']}, {speed}{ratio}. "
                      "Set Repeats to 3 to see whether that is more than noise.")
    over = f"over {first['runs']} runs"
    if first["low"] <= second["high"]:
        return None, (f"Too close to call: {first['title']} ({speed}) and {second['title']} "
                      f"({second['tokens_per_second']:.0f}) overlap {over}; the difference is noise.")
    if first["key"] == baseline:
        return baseline, f"Plain decoding is fastest here, {speed} ({_range(first)} {over}): no method paid for itself."
    return first["key"], f"{first['title']} is fastest: {speed} ({_range(first)} {over}){ratio}."


def _range(row: dict[str, Any]) -> str:
    return f"{row['low']:.0f} to {row['high']:.0f}"
