"""A trace as Chrome trace events (JSON), which Perfetto and chrome://tracing open beside a profile of an engine.

Each lane is a thread; draft, verify, judge and commit of each round are slices in it. A drafter that works
while the target verifies has a thread of its own, because slices of one thread must not overlap.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from .files import Trace

Event = dict[str, Any]
PROCESS = 1
OVERLAP = 1e-9  # seconds; less is rounding


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """Return the trace as an object of Chrome's trace event format; times are microseconds of each lane's own
    clock."""
    events: list[Event] = [_named("process_name", 0, "specviz")]
    for lane in trace.lanes:
        events += _lane(trace, lane)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _lane(trace: Trace, lane: int) -> Iterator[Event]:
    header = trace.header(lane)
    title = f"{header['method']['title']} ({(header.get('target') or {}).get('name', '')})"
    threads = {"": 2 * lane}
    yield _named("thread_name", 2 * lane, title)
    if _overlapping(trace, lane):
        threads["draft"] = 2 * lane + 1
        yield _named("thread_name", 2 * lane + 1, f"{title}: draft")
    for number in threads.values():
        sort = {"sort_index": number}
        yield {"ph": "M", "pid": PROCESS, "tid": number, "name": "thread_sort_index", "args": sort}
    texts = _texts(trace, lane)
    phases = {record["round"]: record for record in trace.of("timing", lane)}
    ends: dict[int, float] = {}  # round -> end of its last verification
    last = 0.0
    for record in trace.records:
        kind = record["type"]
        if record["lane"] != lane:
            continue
        if kind in ("prefill", "draft", "verify"):
            number = threads.get(kind, threads[""])
            yield _slice(kind, number, record["t0"], record["t1"], _about(record))
            last = max(last, record["t1"])
            if kind != "prefill":
                ends[record["round"]] = max(ends.get(record["round"], 0.0), record["t1"])
        elif kind == "commit":
            timing = phases.get(record["round"])
            begun = min(ends.get(record["round"], last), record["t"])
            yield from _end_of_round(threads[""], begun, record, timing, texts.get(record["round"], ""))
            last = max(last, record["t"])


def _end_of_round(
    thread: int, begun: float, commit: dict[str, Any], timing: dict[str, Any] | None, text: str
) -> Iterator[Event]:
    """Yield the slices from the verification's end to the commit, and the number of accepted tokens."""
    accepted = len(commit["path"]) + (commit["tail"]["why"] == "accepted")
    about = {
        "round": commit["round"],
        "accepted": accepted,
        "new tokens": commit["n_new"],
        "last token": commit["tail"]["why"],
        "text": text,
    }
    if timing is None:  # a message of a server
        yield _slice("receive", thread, begun, commit["t"], about)
        return
    judged = min(commit["t"], begun + timing["judge_ns"] / 1e9)
    yield _slice("judge", thread, begun, judged, {"round": commit["round"]})
    yield _slice("commit", thread, judged, commit["t"], about)
    counter = {"name": f"accepted tokens, lane {thread // 2}", "args": {"accepted": accepted}}
    yield {"ph": "C", "pid": PROCESS, "tid": thread, "ts": commit["t"] * 1e6, **counter}


def _overlapping(trace: Trace, lane: int) -> bool:
    """Return whether the lane drafts while it verifies."""
    spans = sorted(
        (record["t0"], record["t1"]) for kind in ("draft", "verify") for record in trace.of(kind, lane)
    )
    return any(after[0] < before[1] - OVERLAP for before, after in zip(spans, spans[1:]))


def _texts(trace: Trace, lane: int) -> dict[int, str]:
    """Return the text of each round; empty for pictures."""
    if (trace.header(lane).get("output") or {"kind": "text"}).get("kind") != "text":
        return {}
    return {
        record["round"]: b"".join(base64.b64decode(piece["b"]) for piece in record["pieces"]).decode(
            "utf-8", "replace"
        )
        for record in trace.of("text", lane)
    }


def _about(record: dict[str, Any]) -> dict[str, Any]:
    if record["type"] == "prefill":
        return {"tokens": record["n"]}
    if record["type"] == "verify":
        return {"round": record["round"], "tokens in the pass": record["n_in"]}
    nodes = record["nodes"]
    depth = max((node["depth"] for node in nodes), default=0)
    return {"round": record["round"], "kind": record["kind"], "tokens": len(nodes), "depth": depth}


def _slice(name: str, thread: int, start: float, end: float, about: dict[str, Any]) -> Event:
    duration = max(0.0, end - start) * 1e6
    return {
        "ph": "X",
        "pid": PROCESS,
        "tid": thread,
        "ts": start * 1e6,
        "dur": duration,
        "name": name,
        "cat": "specviz",
        "args": about,
    }


def _named(kind: str, thread: int, name: str) -> Event:
    return {"ph": "M", "pid": PROCESS, "tid": thread, "name": kind, "args": {"name": name}}
