"""Traces as Chrome trace events."""

from __future__ import annotations

import json

import pytest

from specviz import ASSETS
from specviz.cli import commands
from specviz.cli.messages import TEXTS
from specviz.trace.chrome import chrome_trace
from specviz.trace.files import Trace

from ..message_codes import codes

RECORDED = sorted((ASSETS / "traces").glob("*.jsonl*"))
ORDER = ("draft", "verify", "judge", "commit")


def slices(found):
    return [event for event in found["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_every_recording_has_its_rounds_as_slices_that_do_not_overlap(path):
    trace = Trace.load(path)
    found = chrome_trace(trace)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    threads: dict[int, list] = {}
    for event in slices(found):
        assert event["ts"] >= 0 and event["dur"] >= 0
        threads.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        for before, after in zip(sorted(spans), sorted(spans)[1:]):
            assert after[0] >= before[1] - 1e-3  # a nanosecond: the clock's spans are rounded
    for lane in trace.lanes:
        commits = [event for event in slices(found) if event["name"] == "commit" and event["tid"] == 2 * lane]
        records = trace.of("commit", lane)
        assert [event["args"]["new tokens"] for event in commits] == [record["n_new"] for record in records]
        totals = trace.totals(lane)
        assert sum(event["args"]["accepted"] for event in commits) == totals["accepted"]
        verified = [
            event for event in slices(found) if event["name"] == "verify" and event["tid"] == 2 * lane
        ]
        assert len(verified) == totals["rounds"]
        seconds = sum(event["dur"] for event in verified) / 1e6
        assert seconds == pytest.approx(totals["verify_seconds"], rel=0.02, abs=1e-3)


def small(*records):
    header = {"type": "header", "method": {"title": "x"}, "target": None, "prompt": {"ids": [], "text": ""}}
    return Trace([{"seq": i, "lane": 0, **record} for i, record in enumerate([header, *records])])


@pytest.mark.parametrize("until, thread", [(1.0, 0), (2.5, 1)])
def test_a_drafter_beside_its_target_has_a_thread_of_its_own(until, thread):
    trace = small(
        {"type": "draft", "round": 0, "t0": 0.5, "t1": until, "kind": "none", "nodes": []},
        {"type": "verify", "round": 0, "t0": 1.0, "t1": 2.0, "n_in": 1},
    )
    events = chrome_trace(trace)["traceEvents"]
    assert len([event for event in events if event["name"] == "thread_name"]) == 1 + thread
    assert [(event["name"], event["tid"]) for event in events if event["ph"] == "X"] == [
        ("draft", thread),
        ("verify", 0),
    ]


def test_a_servers_messages_are_slices():
    commits = (
        {
            "type": "commit",
            "round": i,
            "t": 2.0 + i,
            "path": [],
            "n_new": 1,
            "tail": {"tok": 5, "why": "received"},
        }
        for i in range(2)
    )
    trace = small({"type": "prefill", "t0": 0.0, "t1": 1.0, "n": 3}, *commits)
    found = [(event["name"], event["ts"], event["dur"]) for event in slices(chrome_trace(trace))]
    assert found == [("prefill", 0.0, 1e6), ("receive", 1e6, 1e6), ("receive", 2e6, 1e6)]


def test_the_command_writes_them_and_does_not_call_them_a_page(tmp_path, capsys):
    out = tmp_path / "run.json"
    assert commands.main(["replay", str(RECORDED[0]), "--chrome", str(out)]) == 0
    assert "replay.chrome" in codes(capsys.readouterr().out.strip(), TEXTS)
    assert json.loads(out.read_text()) == chrome_trace(Trace.load(RECORDED[0]))


REQUIRED = {  # fields of each kind of event in the format's definition; ts and dur are microseconds
    "X": {"name", "ph", "ts", "dur", "pid", "tid"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "args"},
}
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_events_have_what_the_format_asks_of_their_kind(path):
    """What a reader of the format rejects or drops: other kinds, missing fields, ids that are no 32-bit
    numbers, times before 0, counters of texts, metadata without its argument, threads without a name."""
    found = chrome_trace(Trace.load(path))
    assert set(found) == {"traceEvents", "displayTimeUnit"} and found["displayTimeUnit"] in ("ms", "ns")
    named = set()
    for event in found["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys() and isinstance(event["name"], str) and event["name"]
        for number in (event["pid"], event["tid"]):
            assert type(number) is int and 0 <= number < 2**31
        for time in (event.get("ts", 0.0), event.get("dur", 0.0)):
            assert isinstance(time, float | int) and 0 <= time < 1e15
        if event["ph"] == "C":
            assert all(type(value) in (int, float) for value in event["args"].values())
        if event["ph"] == "M":
            assert METADATA[event["name"]] in event["args"]
            named |= {event["tid"]} if event["name"] == "thread_name" else set()
    assert {event["tid"] for event in slices(found)} <= named
