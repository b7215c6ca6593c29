"""The benchmark figures that the page shows (assets/bench.json), computed from the same ledger file as
docs/bench.md."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from .. import ASSETS
from . import bench_page
from .bench_ledger import Ledger
from .benchmark import nonempty_quartiles

FIGURES = ASSETS / "bench.json"
SCHEMA = "specviz-bench/1"


def speedup_figures(ledger: Ledger, target: str | None = None, draft: str | None = None) -> dict[str, Any]:
    """Return {schema, where, target, draft, noise, memory, speedups}. ``where``: a sentence on machine, versions
    and models; ``noise``: median difference of two runs of plain decoding; ``speedups``: {method key:
    {temperature: median speed-up over plain decoding}}. Raises SessionError for an empty ledger."""
    sessions, _ = bench_page.select_sessions(ledger, target, draft)
    speedups: dict[str, dict[str, float]] = {}
    for temperature in sorted({float(one.settings["temperature"]) for one in sessions}):
        of = bench_page.figures_by_method(
            [one for one in sessions if float(one.settings["temperature"]) == temperature]
        )
        for key, row in of.items():
            if row.speeds():
                speedups.setdefault(key, {})[f"{temperature:g}"] = round(
                    nonempty_quartiles(row.speeds())[1], 4
                )
    return {
        "schema": SCHEMA,
        "where": bench_page.setting_sentence(sessions),
        "target": bench_page.name_of(sessions[0], "target"),
        "draft": bench_page.name_of(sessions[0], "draft"),
        "noise": round(median(bench_page.plain_differences(sessions) or [0.0]), 4),
        "memory": memory_figures(sessions),
        "speedups": speedups,
    }


def memory_figures(sessions: list[Any]) -> dict[str, list[int]]:
    """Return {method key: [bytes of its weights, bytes of its KV caches at the end of its longest run]},
    besides the target's; without methods whose runs did not record it."""
    found: dict[str, list[int]] = {}
    for run in (run for one in sessions for group in one.run_groups for run in group.runs):
        if run.draft_weight_bytes is not None and run.draft_cache_bytes is not None:
            now = found.setdefault(run.method, [0, 0])
            found[run.method] = [max(now[0], run.draft_weight_bytes), max(now[1], run.draft_cache_bytes)]
    return found


def figures_json(found: dict[str, Any]) -> str:
    """Return the figures as JSON text with one method per line."""
    head = {name: value for name, value in found.items() if name != "speedups"}
    rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in found["speedups"].items())
    return json.dumps(head, ensure_ascii=False)[:-1] + ', "speedups": {\n' + rows + "\n}}\n"
