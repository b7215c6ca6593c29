"""Records of a run and back: every type round-trips, and no hostile file does more than be refused."""

from __future__ import annotations

import base64
import copy
import gzip
import json
from contextlib import suppress
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specviz.core import Sampling
from specviz.run import Session, race
from specviz.trace.events import Failed, Noted
from specviz.trace.files import BIGGEST, Trace, TraceError
from specviz.trace.recorder import Recorder, without_nonfinite
from specviz.trace.schema import SCHEMA

from ..message_codes import refuses
from ..run.fakes import FakeLoaded

quick = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
PROMPT = "the cat <|end|> \U0001f600"


@lru_cache
def recorded():
    """Two lanes, sampled, with distributions saved, a note, a stop string; and a third that failed."""
    loaded = FakeLoaded()
    keys = ["speculative", "draft_tree"]
    recorders = [Recorder(lane, loaded.token_bytes, loaded.token_bytes.special) for lane in range(3)]
    records = []
    for lane, event in race(
        [Session(loaded, key, None, Sampling(0.9, seed=3)) for key in keys], PROMPT, 12, top_k_saved=4
    ):
        records += recorders[lane].take(event)
    started = next(Session(loaded, "autoregressive").run(PROMPT))
    for event in (
        started,
        Noted(0, "pool", {"tokens": [[7, 9], [260]], "width": 3, "top": [[11, 0.5]]}),
        Failed("It broke."),
    ):
        records += recorders[2].take(event)
    return records


def lines(records):
    return "".join(json.dumps(r) + "\n" for r in records)


def test_a_recording_is_valid_and_comes_back(tmp_path):
    trace = Trace(recorded())
    for name in ("run.jsonl", "run.jsonl.gz"):
        trace.save(tmp_path / name)
        back = Trace.load(tmp_path / name)
        assert back.records == trace.records and back.lanes == [0, 1, 2]
        assert Trace.load(str(tmp_path / name)).records == trace.records
    assert Trace.load(trace.lines()).records == Trace.load(trace.lines().encode()).records == trace.records
    assert {r["type"] for r in trace.records} == SCHEMA.keys() - {"stop", "check"} and len(
        list(tmp_path.iterdir())
    ) == 2


def test_every_token_has_its_bytes_before_it_is_named():
    loaded = FakeLoaded()
    for lane in range(3):
        known = {}
        for record in (r for r in recorded() if r["lane"] == lane):
            if record["type"] == "vocab":
                assert not known.keys() & {int(i) for i in record["tokens"]}  # once a lane
                known |= {int(i): base64.b64decode(b) for i, b in record["tokens"].items()}
                assert (
                    set(record["special"]) == {int(i) for i in record["tokens"]} & loaded.token_bytes.special
                )
            for node in record.get("nodes", ()):
                assert node["tok"] in known and all(i in known for i, _ in node.get("top", ()))
            for name in ("top_p", "resid"):
                assert all(i in known for i, _ in record.get(name, ()))
            if record["type"] == "commit":
                assert record["tail"]["tok"] in known
            if record["type"] == "lens":
                assert {7, 9, 260, 11} <= known.keys()
        assert set(Trace(recorded()).header(lane)["prompt"]["ids"]) <= known.keys()
        assert all(known[i] == loaded.token_bytes(i) for i in known)


def test_counts_called_tokens_are_not_token_ids():
    done = Recorder(0, lambda i: b"x").take(Failed("no", {"tokens": 17}))
    assert [r["type"] for r in done] == ["error", "done"]


def test_text_and_totals_by_lane():
    trace = Trace(recorded())
    for lane in (0, 1):
        pieces = [p for r in trace.of("text", lane) for p in r["pieces"]]
        assert (
            trace.text(lane).encode()
            == b"".join(base64.b64decode(p["b"]) for p in pieces).decode("utf-8", "replace").encode()
        )
        assert trace.totals(lane)["tokens"] == len(pieces) == 12
    assert trace.text(2) == "" and trace.header(1)["method"]["key"] == "draft_tree"
    with refuses(TraceError, "trace.lane", 9):
        trace.header(9)


def test_text_ends_before_the_stop_string():
    loaded = FakeLoaded()
    recorder = Recorder(0, loaded.token_bytes)
    whole = [
        r
        for e in Session(loaded, "autoregressive").run(PROMPT, 30)
        for r in Recorder(0, loaded.token_bytes).take(e)
    ]
    text = Trace(whole).text()
    stop = next(text[i : i + 2] for i in range(4, 20) if "\ufffd" not in text[i : i + 2])
    records = [
        r for e in Session(loaded, "speculative").run(PROMPT, 30, stop=[stop]) for r in recorder.take(e)
    ]
    assert Trace.load(lines(records)).text() == text[: text.index(stop)]


def test_what_is_not_finite_becomes_null():
    assert without_nonfinite({"a": [float("nan"), (1.5, float("-inf"))], 3: True}) == {
        "a": [None, [1.5, None]],
        "3": True,
    }


def changed(at, path, value):
    records = copy.deepcopy(recorded())
    spot = records[at]
    for name in path[:-1]:
        spot = spot[name]
    spot[path[-1]] = value
    return lines(records)


def leaves(value, path=()):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from leaves(inner, (*path, i))
    else:
        yield path


WRONG = [
    None,
    True,
    "x" * 3000,
    -7,
    1.5,
    10**400,
    float("nan"),
    float("inf"),
    [],
    {},
    [[[[]]]],
    {"a": {}},
    "\u0000",
    "AA=A",
]


@quick
@given(st.data())
def test_any_field_of_a_wrong_kind_is_refused_or_harmless(data):
    at = data.draw(st.integers(0, len(recorded()) - 1))
    path = data.draw(st.sampled_from(list(leaves(recorded()[at]))))
    try:
        trace = Trace.load(changed(at, path, data.draw(st.sampled_from(WRONG))))
    except TraceError as error:
        said = str(error)
        assert said.endswith(".") and "\n" not in said and len(said) < 400
    else:  # then everything a viewer asks for works
        for lane in trace.lanes:
            trace.text(lane), trace.totals(lane), trace.header(lane)
        json.dumps(trace.records, allow_nan=False)


@quick
@given(st.integers(0, 10**6))
def test_truncated_anywhere(cut):
    whole = lines(recorded())
    part = whole[: cut % len(whole)]
    try:
        assert len(Trace.load(part + "\n").records) <= len(recorded())
    except TraceError as error:
        assert str(error).endswith(".")


@quick
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_reordered_records_of_a_lane_are_refused(a, b):
    records = list(recorded())
    a, b = a % len(records), b % len(records)
    records[a], records[b] = records[b], records[a]
    same = {r["lane"] for r in records[min(a, b) : max(a, b) + 1]}
    swapped = records[a]["lane"] == records[b]["lane"] or len(same) < 2
    if a != b and swapped:
        with pytest.raises(TraceError):
            Trace.load(lines(records))
    else:
        with suppress(TraceError):
            Trace.load(lines(records))


@quick
@given(st.binary(max_size=400))
def test_noise_is_refused(noise):
    for head in (b"", b"\x1f\x8b", b"{", gzip.compress(noise)):
        with pytest.raises(TraceError):
            Trace.load(head + noise)


@quick
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=12,
    ),
    st.sampled_from(sorted(SCHEMA)),
)
def test_any_json_at_all_as_a_record(value, kind):
    record = value if not isinstance(value, dict) else {"type": kind, "seq": 0, "lane": 0, **value}
    with pytest.raises(TraceError):
        Trace.load(json.dumps(record) + "\n")


def test_deep_nesting_and_bombs(tmp_path):
    with refuses(TraceError, "trace.json"):
        Trace.load('{"a":' * 100_000 + "\n")
    header = copy.deepcopy(recorded()[0])
    header["knobs"] = {"k": eval("[" * 40 + "]" * 40)}
    with refuses(TraceError, "trace.depth"):
        Trace.load(lines([header]))
    bomb = tmp_path / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(b" " * (BIGGEST * 3)))
    with refuses(TraceError, "trace.large", "20 MB"):
        Trace.load(bomb)
    with refuses(TraceError, "trace.damaged"):
        Trace.load(gzip.compress(lines(recorded()).encode())[:-20])


def test_caps_on_nodes_lanes_and_records(monkeypatch):
    records = copy.deepcopy(recorded())
    draft = next(r for r in records if r["type"] == "draft" and r["nodes"])
    draft["nodes"] = [{**draft["nodes"][0], "id": i, "parent": -1, "depth": 1} for i in range(5000)]
    with refuses(TraceError, "trace.long_list", "4096"):
        Trace.load(lines(records))
    with refuses(TraceError, "trace.lane_number"):
        Trace.load(lines([{**recorded()[0], "lane": 64}]))
    monkeypatch.setattr("specviz.trace.files.RECORDS", 10)
    with refuses(TraceError, "trace.content", 10):
        Trace.load(lines(recorded()))


@pytest.mark.parametrize("source", ["/no/such/file.jsonl", ".", "", "x" * 5000, "\x00"])
def test_files_that_are_not_there(source):
    with pytest.raises(TraceError):
        Trace.load(source)


def test_a_place_that_cannot_be_written(tmp_path):
    with refuses(TraceError, "trace.write"):
        Trace(recorded()).save(tmp_path / "no" / "run.jsonl")
    (tmp_path / "dir").mkdir()
    with refuses(TraceError, "trace.write"):
        Trace(recorded()).save(tmp_path / "dir")
    assert [p.name for p in tmp_path.iterdir()] == ["dir"]  # and nothing is left behind
