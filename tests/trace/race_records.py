"""The races of tests/vectors/races.json as records of a trace. Python's judge, the notebook's table and the
viewer's scripts take the same records, and have to come to the same end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..viewer import sample

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "races.json").read_text(encoding="utf-8"))


def race_records(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a race, lane after lane."""
    records = [one for number, lane in enumerate(case["lanes"]) for one in _lane(number, lane)]
    return [{"seq": seq, **one} for seq, one in enumerate(records)]


def _lane(number: int, lane: dict[str, Any]) -> list[dict[str, Any]]:
    """``rounds`` of a lane: [tokens, seconds of the pass]; ``repeats``: seconds of its further runs."""
    head = dict(sample.race(("plain",), tokens=1)[0])
    del head["seq"], head["lane"]
    method = head["method"] | {"key": lane["key"], "title": lane["key"]}
    if lane.get("bound"):
        method["bound"] = True
    if lane.get("server"):
        head["clock"] = "client"
    records: list[dict[str, Any]] = [
        head | {"method": method},
        {"type": "prefill", "t0": 0.0, "t1": 0.01, "n": 3},
        {"type": "vocab", "tokens": {"10": "YQ=="}, "special": []},
    ]
    now = 0.01
    for count, (tokens, seconds) in enumerate(lane["rounds"]):
        records += _round(count, tokens, now, seconds)
        now += seconds
    written = sum(tokens for tokens, _ in lane["rounds"])
    repeats = [{"tokens": written, "seconds": seconds, "replaced": 0} for seconds in lane.get("repeats", ())]
    totals = {"tokens": written, "rounds": len(lane["rounds"]), "seconds": now - 0.01, "repeats": repeats}
    records.append({"type": "done", "finish": "length", "totals": totals, "peak_mem": None})
    return [{"lane": number, **one} for one in records]


def _round(count: int, tokens: int, began: float, seconds: float) -> list[dict[str, Any]]:
    nodes = [{"id": i, "parent": i - 1, "depth": i + 1, "tok": 10, "q": None} for i in range(tokens - 1)]
    at = {"round": count}
    timing = dict.fromkeys(("draft_ns", "judge_ns", "cache_ns", "other_ns"), 0)
    return [
        at
        | {
            "type": "draft",
            "t0": began,
            "t1": began,
            "kind": "chain" if nodes else "none",
            "nodes": [{**node, "how": "det"} for node in nodes],
        },
        at | {"type": "verify", "t0": began, "t1": began + seconds, "n_in": tokens},
        *(
            at | {"type": "judge", "node": node["id"], "rule": "match", "p": 1, "q": 1, "a": 1, "u": 0.5}
            | {"verdict": "accepted"}
            for node in nodes
        ),
        at
        | {
            "type": "commit",
            "t": began + seconds,
            "path": [node["id"] for node in nodes],
            "tail": {"tok": 10, "why": "bonus" if nodes else "plain", "p": 1, "top": [[10, 1]]},
            "n_new": tokens,
            "kv": {"before": 3 + count, "after": 3 + count + tokens, "dropped": 0},
        },
        at | {"type": "text", "pieces": [{"tok": 10, "b": "YQ==", "span": [0, 1]}] * tokens},
        at | timing | {"type": "timing", "verify_ns": round(seconds * 1e9)},
    ]  # fmt: skip
