"""What the viewer works out without a page: fold, frames, reader, metrics, verdicts, distributions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specviz.trace.events import Committed, Decided, Drafted, Verified
from specviz.trace.metrics import Totals, walltime_speedup
from specviz.trace.page import VIEWER, scripts

from ..trace.race_records import CASES, race_records
from . import sample
from .javascript import NODE, in_node, in_page
from .lenses import lensed

HERE = Path(__file__).parent
# Every script of the viewer: none of them may touch the page as it loads.
FILES = [VIEWER / f"{name}.js" for name in scripts()] + [
    HERE / name
    for name in (
        "tools.js",
        "cases.js",
        "cases_frames.js",
        "cases_race.js",
        "cases_dial.js",
        "cases_why.js",
        "cases_grammar.js",
        "cases_speed.js",
    )
]


def totals(records: list[dict]) -> Totals:
    """The engine's own counts over a lane's records."""
    out, timing = Totals(), {r["round"]: r for r in records if r["type"] == "timing"}
    for r in records:
        if r["type"] == "prefill":
            out.prefill_seconds += r["t1"] - r["t0"]
        elif r["type"] == "draft":
            out.fold(Drafted(r["round"], r["t0"], r["t1"], tuple(r["nodes"])))
        elif r["type"] == "verify":
            out.fold(Verified(r["round"], r["t0"], r["t1"], r["n_in"]))
            out.fold(
                Decided(
                    r["round"], tuple(j for j in records if j["type"] == "judge" and j["round"] == r["round"])
                )
            )
        elif r["type"] == "commit":
            seconds = {
                k: timing[r["round"]][f"{k}_ns"] / 1e9 for k in ("draft", "verify", "judge", "cache", "other")
            }
            out.fold(
                Committed(
                    r["round"],
                    r["t"],
                    tuple(r["path"]),
                    (0,) * r["n_new"],
                    r["tail"]["why"],
                    None,
                    None,
                    r["kv"],
                    seconds,
                )
            )
    return out


def _rows(records: list[dict], lane: int) -> int:
    return sum(r["n_in"] for r in records if r["lane"] == lane and r["type"] == "verify")


def _parts(records: list[dict], lane: int) -> list[float]:
    """Engine seconds by part: draft, verify, judge, cache, other."""
    mine = [r for r in records if r["lane"] == lane and r["type"] == "timing"]
    return [
        sum(r[f"{name}_ns"] for r in mine) / 1e9 for name in ("draft", "verify", "judge", "cache", "other")
    ]


def expected(records: list[dict]) -> dict[int, dict]:
    """The figures the Python side gives for every lane."""
    counts = {
        lane: totals([r for r in records if r["lane"] == lane]) for lane in {r["lane"] for r in records}
    }
    names = ("tokens", "drafted", "accepted", "tried", "by_position")
    return {
        lane: {
            "rows": _rows(records, lane),
            "parts": _parts(records, lane),
            **{n: getattr(t, n) for n in names},
            **{k: v for k, v in t.metrics().items() if k != "seconds_per_token"},
            "walltime_speedup": walltime_speedup(counts[0], t),
        }
        for lane, t in counts.items()
    }


def fixture() -> dict:
    race = sample.race()
    unicode = sample.race(("plain", "chain"), text=sample.UNICODE, split=True)
    hostile = sample.race(("plain", "tree"), text=sample.HOSTILE, split=True)
    for records in (race,):  # the end's own total, so that both sides divide by one number
        for r in records:
            if r["type"] == "done":
                r["totals"]["seconds"] = totals([x for x in records if x["lane"] == r["lane"]]).seconds
    return {
        "lensed": lensed(sample.race(("plain", "tree"), tokens=60), 1, every=2),
        "speed": json.loads((HERE.parent / "vectors/speed.json").read_text(encoding="utf-8")),
        "races": [case | {"records": race_records(case)} for case in CASES],
        "race": race, "woven": sample.interleaved(race), "frames": sample.frames(race), "metrics": expected(race),
        "unicode": {"records": unicode, "text": sample.UNICODE}, "hostile": {"records": hostile, "text": sample.HOSTILE},
    }  # fmt: skip


def test_the_pure_parts_by_themselves(tmp_path: Path, request) -> None:
    if NODE:
        in_node(FILES, fixture(), tmp_path)
    else:
        in_page(FILES, fixture(), request.getfixturevalue("drive"))


@pytest.mark.thorough
def test_the_same_cases_in_chromium(drive) -> None:
    in_page(FILES, fixture(), drive)
