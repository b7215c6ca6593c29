"""The Lab's questions: mistakes are caught and the right method is not, distributions fit, costs and sweeps
hold what was asked for."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from specviz import lab
from specviz.evidence import certificate as certify
from specviz.lab import broken_methods as broken
from specviz.lab import distribution_test
from specviz.lab import recordings as library
from specviz.lab.compare import compare, lanes_of
from specviz.lab.distribution_test import TEXTS
from specviz.lab.mistakes import MISTAKES
from specviz.run import machine
from specviz.run.request import SessionError
from specviz.targets.tiny import TinyTarget
from specviz.trace.speed import LaneTimes, RunTime, TimedRound

from ..exactness.toys import toy
from ..message_codes import begins, refuses
from ..run.fakes import FakeLoaded

PROMPT = [1, 2, 0, 3, 1, 2]


class Tiny(FakeLoaded):
    """Twelve tokens, so that a few hundred runs tell a distribution."""

    draft_problem = ""

    def __init__(self, vocab: int = 12):
        super().__init__(context=96)
        pair = toy(vocab, share=0.3, sharp=1.2)
        self.net = pair.net
        self.draft = pair.small
        self.vocab = vocab
        self.facts = {
            "target": {"name": "tiny"},
            "draft": {"name": "tinier"},
            "env": {"machine": "none", "device": "cpu", "dtype": "float32"},
        }

    def open_target(self):
        return TinyTarget(self.net, self.context)


@pytest.fixture
def tiny(monkeypatch):
    for module in (certify, distribution_test):
        monkeypatch.setattr(module, "encode", lambda loaded, prompt: list(PROMPT))
    return Tiny()


def ask(name, payload, loaded=None, stop=bool):
    parts = list(lab.answer(name, payload, loaded, stop))
    json.dumps(parts, allow_nan=False)
    return parts


@pytest.mark.parametrize(
    "key",
    [pytest.param(key, marks=[pytest.mark.thorough] if i % 5 else []) for i, key in enumerate(MISTAKES)],
)
def test_every_mistake_is_caught(tiny, key):
    if key == "rank_by_drawn_token":  # the better the draft, the more it distorts
        tiny.draft = toy(12, share=0.9, sharp=1.2).small
    found = ask("break_it", {"mistake": key, "samples": 260}, tiny)[-1]
    assert found["caught"] is True and found["verdict"].startswith("Caught"), found
    assert found["title"] == MISTAKES[key].title
    says = MISTAKES[key].watch
    if says.startswith("Greedy stays green"):
        assert found["greedy"]["equal"] and found["distribution"]["verdict"] == "fail"
    elif says.startswith("The distribution test turns red"):
        assert found["distribution"]["verdict"] == "fail"
    else:
        assert not found["greedy"]["equal"]


def test_the_right_method_stays_green(tiny):
    found = ask("break_it", {"mistake": broken.NONE.key, "samples": 100}, tiny)[-1]
    assert (
        found["caught"] is False
        and found["greedy"]["equal"]
        and found["distribution"]["p_value"] > distribution_test.RED
    )


def test_every_mistake_is_reported_and_built():
    reported = ask("mistakes", {})[-1]
    assert [m["key"] for m in reported] == list(MISTAKES) and set(MISTAKES) | {broken.NONE.key} == set(
        broken.BUILT
    )
    assert len(reported) == 6 and all(m["title"] and m["why"] and m["watch"] for m in reported)


def test_a_distribution_fills_in_and_ends_with_a_verdict(tiny):
    parts = ask("distribution", {"method": "speculative", "samples": 60}, tiny)
    assert [p["samples"] for p in parts] == [20, 40, 60] and [p["verdict"] for p in parts] == [
        "open",
        "open",
        "few",
    ]
    last = parts[-1]
    assert len(last["tokens"]) == len(last["plain_law"]) == len(last["method_counts"])
    assert sum(last["method_counts"]) == 60 and sum(last["plain_law"]) == pytest.approx(1)
    assert last["p_value"] > distribution_test.RED and last["freedom"] == len(last["tokens"]) - 1


def test_a_distribution_that_is_stopped_ends_with_what_there_is(tiny):
    assert [
        p["samples"]
        for p in ask("distribution", {"method": "speculative", "samples": 60}, tiny, lambda: True)
    ] == [20]


def test_too_few_samples_claim_nothing(tiny):
    """Green is said only where as much was drawn as was asked for, and that was enough to look."""
    few = ask("distribution", {"method": "speculative", "samples": 60}, tiny)[-1]
    assert few["verdict"] == "few" and few["said"].startswith(begins(TEXTS, "few", asked=60, played=60))
    cut = ask("distribution", {"method": "speculative", "samples": 200}, tiny, lambda: True)[-1]
    assert (
        cut["verdict"] == "few"
        and cut["asked"] == 200
        and cut["samples"] == 20
        and cut["said"].startswith(begins(TEXTS, "few", asked=200, played=20))
    )
    assert all(p * 20 >= 5 - 1e-9 for p in cut["plain_law"]), "cells are made for what was drawn"


@pytest.mark.thorough
def test_places_of_whole_answers_are_flat_and_bend_where_something_is_broken(tiny):
    right = ask("distribution", {"method": "speculative", "samples": 120}, tiny)[-1]["places"]
    assert right["samples"] == sum(right["histogram"]) > 50 and right["p"] > 1e-3 and not right["impossible"]
    bent = ask("break_it", {"mistake": "first_unchecked", "samples": 200}, tiny)[-1]["distribution"]["places"]
    assert bent["p"] < right["p"] and sum(bent["histogram"][:5]) != sum(bent["histogram"][-5:])


def test_costs_are_reported_for_every_count_of_rows(tiny, monkeypatch):
    opened, closed = [], []
    kit = tiny.kit
    monkeypatch.setattr(tiny, "kit", lambda: opened.append(kit()) or opened[-1])
    monkeypatch.setattr(type(kit()), "close", lambda self: closed.append(self), raising=False)
    parts = ask("cost_curve", {}, tiny, lambda: True)
    assert opened == closed and len(opened) == 1
    last = parts[-1]
    assert (
        last["rows"] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] and last["turns"] == 1
    )  # what fits beside the text
    assert (
        len(last["seconds"]) == len(last["rows"])
        and min(last["seconds"]) > 0
        and last["one"] == last["seconds"][0]
    )
    assert last["draft_seconds"] > 0 and last["machine"] == "none, cpu, float32, tiny with tinier"


def test_a_sweep_holds_every_value_beside_plain_decoding():
    loaded = FakeLoaded()
    parts = ask(
        "sweep",
        {
            "method": "speculative",
            "knob": "gamma",
            "values": [1, "4", 4],
            "prompt": "the cat",
            "max_new_tokens": 8,
        },
        loaded,
    )
    reported = [p for p in parts if not isinstance(p, str)]
    assert len(reported) == 3 and reported[-1]["turns"] == 3
    assert [row["value"] for row in reported[-1]["rows"]] == [1, 4]
    spread = [[row["low"] is not None for row in one["rows"]] for one in reported]
    assert spread == [[False] * 2, [True] * 2, [True] * 2]  # one turn has none
    for row in reported[-1]["rows"]:
        assert (
            row["tokens_per_second"] > 0
            and row["plain_tokens_per_second"] == reported[-1]["plain_tokens_per_second"] > 0
        )
        assert not row["named"] or row["speedup_low"] <= row["walltime_speedup"] <= row["speedup_high"]
        assert 1 <= row["block_efficiency"] <= row["value"] + 1


def test_a_load_is_reported_as_it_grows_and_a_stop_tells_what_there_is(monkeypatch):
    monkeypatch.setattr(
        machine, "fit_threads", lambda measure, compiled: (1, 1.0)
    )  # no pass is slow beside that: a busy machine concludes nothing
    payload = {
        "methods": ["autoregressive", "speculative"],
        "users": [2],
        "requests": 2,
        "max_new_tokens": 4,
        "tasks": ["chat"],
    }
    *growing, last = ask("load", payload, FakeLoaded(context=400))
    assert (
        growing and all(part["at"]["users"] == 2 for part in growing) and "at" not in last and last["machine"]
    )
    assert {row["method"] for row in last["rows"]} == {"autoregressive", "speculative"} and len(
        last["said"]
    ) == 1
    cut = ask("load", payload | {"users": [1, 2]}, FakeLoaded(context=400), lambda: True)[-1]
    assert cut["environment"]["interrupted"] and {row["load"] for row in cut["rows"]} == {"1 user"}


def test_the_tasks_are_those_of_the_suite():
    from specviz.evidence.prompt_suites import read_suite

    assert {t["task"]: t["prompts"] for t in ask("tasks", {})[-1]} == Counter(
        item.task for item in read_suite()
    )


@pytest.mark.parametrize(
    "name, payload, says",
    [
        ("load", {"users": [99]}, "request.whole users"),
        ("load", {"users": list(range(9))}, "lab.list 6"),
        ("load", {"rates": [-1]}, "load.rate 0"),
        ("load", {"rates": "many"}, "lab.list"),
        ("load", {"methods": [["a"]]}, "lab.names"),
        ("load", {"requests": 1e9}, "request.whole requests"),
        ("load", {"tasks": ["songs"]}, "suite.task songs"),
        ("break_it", {}, "lab.mistake"),
        ("break_it", {"mistake": ["x"]}, "lab.mistake"),
        ("distribution", {}, "lab.method"),
        ("distribution", {"method": {"a": 1}}, "lab.method"),
        ("distribution", {"method": "nope"}, "method.unknown"),
        ("distribution", {"method": "speculative", "samples": 1e9}, "request.whole samples"),
        ("distribution", {"method": "speculative", "samples": "many"}, "request.number samples"),
        ("distribution", {"method": "speculative", "knobs": {"gamma": 99}}, "lab.value gamma"),
        ("distribution", {"method": "speculative", "knobs": [1]}, "lab.knobs knobs"),
        ("distribution", {"method": "speculative", "prompt": "x" * 5000}, "lab.prompt 4,000"),
        ("distribution", {"method": "speculative", "temperature": 0}, "lab.temperature 0"),
        ("distribution", {"method": "speculative", "temperature": 99}, "sampling.temperature 0 2"),
        ("sweep", {"method": "speculative"}, "lab.prompt"),
        ("sweep", {"method": "speculative", "prompt": "x", "knob": "nope"}, "lab.knob"),
        (
            "sweep",
            {"method": "speculative", "prompt": "x", "knob": "gamma", "values": list(range(99))},
            "lab.values 1 12",
        ),
        (
            "sweep",
            {"method": "speculative", "prompt": "x", "knob": "gamma", "values": [99]},
            "lab.value gamma",
        ),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(tiny, name, payload, says):
    with refuses(SessionError, *says.split()) as refused:
        ask(name, payload, tiny)
    assert "\n" not in str(refused.value)


def test_the_library_lists_what_lies_there(tmp_path):
    (tmp_path / "b.jsonl").write_text("{}\n")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\u00e4\n".encode()))
    (tmp_path / "index.yaml").write_text("b: {title: Bee, about: hums}\ngone: {title: x}\n")
    assert [(x["name"], x["title"]) for x in library.library(tmp_path)] == [("b", "Bee"), ("a", "a")]
    assert library.library_trace("a", tmp_path) == "\u00e4\n"
    (tmp_path / "b.jsonl").write_text('{"type": "header", "lane": 0}\n{"type": "done"}\n')
    header, rest = library.library_trace("b", tmp_path).split("\n", 1)
    assert json.loads(header)["about"] == {"title": "Bee", "text": "hums"} and rest == '{"type": "done"}\n'
    for name in ("../b", "gone", None, 7, ["a"], "b.jsonl"):
        with refuses(lab.LabError, "recording.missing"):
            library.library_trace(name, tmp_path)
    (tmp_path / "a.jsonl.gz").write_bytes(b"no gzip")
    with refuses(lab.LabError, "recording.read"):
        library.library_trace("a", tmp_path)


def test_recordings_of_claims_are_opened_by_name_and_not_listed(tmp_path):
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "medusa-1.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
    assert library.library(tmp_path) == []
    name = library.claim_recording("medusa", 1, tmp_path)
    assert name == "claims/medusa-1" and library.library_trace(name, tmp_path) == "{}\n"
    assert library.claim_recording("medusa", 2, tmp_path) is None
    assert library.claim_recording("../medusa", 1, tmp_path) is None
    with refuses(lab.LabError, "recording.missing"):
        library.library_trace("claims/../claims/medusa-1", tmp_path)


def test_every_recording_of_a_claim_holds_the_pair_that_its_card_names():
    from specviz import Trace
    from specviz.methods import catalogue
    from specviz.ui.claim_rows import claims_of

    names = []
    for key, card in catalogue().items():
        for row in claims_of(card):
            if row["recording"] is None:
                continue
            text = library.library_trace(row["recording"])
            trace = Trace([json.loads(line) for line in text.splitlines()])
            headers = [trace.header(lane) for lane in trace.lanes]
            assert [header["method"]["key"] for header in headers][:-1] == [
                lane["method"] for lane in row["show"]["methods"]
            ]
            assert {header["prompt"]["text"] for header in headers} == {row["show"]["prompt"]}
            assert {header["mode"] for header in headers} == {"recorded"}
            names.append(f"{row['recording'].partition('/')[2]}.jsonl.gz")
            assert key == card.key
    assert sorted(names) == sorted(path.name for path in (library.FOLDER / "claims").glob("*"))


def test_every_shipped_recording_is_whole():
    from specviz import Trace

    for entry in ask("library", {})[-1]:
        records = [
            json.loads(line) for line in ask("library_trace", {"name": entry["name"]})[-1].splitlines()
        ]
        header = Trace(records).header(0)
        assert (
            header["about"] == {"title": entry["title"], "text": entry["about"]}
            and header["mode"] == "recorded"
        )


def test_lanes_of_a_shipped_recording_with_the_same_knobs_draft_the_same_length():
    for entry in ask("library", {})[-1]:
        records = map(json.loads, ask("library_trace", {"name": entry["name"]})[-1].splitlines())
        drafting = [
            (tuple(knobs), knobs["gamma"])
            for knobs in (r["knobs"] for r in records if r["type"] == "header")
            if "gamma" in knobs
        ]
        assert len({names for names, _ in drafting}) == len(set(drafting)), (entry["name"], drafting)


@pytest.mark.parametrize(
    "speeds, winner, says",
    [
        ({"a": [50, 52], "p": [30, 31]}, "a", "A is fastest: 51 tokens/s (50 to 52 over 2 runs), 1.67 times"),
        ({"a": [30, 52], "p": [30, 31]}, None, "Too close to call"),
        ({"a": [20, 21], "p": [30, 31]}, "p", "Plain decoding is fastest here"),
        (
            {"a": [50, 25, 45], "p": [30, 15, 27]},
            "a",
            "A is fastest: 45 tokens/s",
        ),  # slow at the same time, faster in every pair
        (
            {"a": [50, 52, 10], "p": [30, 31]},
            "a",
            "A is fastest: 51 tokens/s (50 to 52 over 2 runs), 1.67 times",
        ),  # of the same pairs
        ({"a": [50], "p": [30]}, None, "Fastest in this one run: A, 50 tokens/s, 1.67 times"),
        ({"a": [50]}, None, ""),
    ],
)
def test_a_race_is_judged_by_its_spread(speeds, winner, says):
    lanes = [{"key": k, "title": k.upper(), "times": lane_of(all_of)} for k, all_of in speeds.items()]
    found = compare(lanes, "p")
    assert found["winner"] == winner and found["sentence"].startswith(says)


def lane_of(speeds: list[float]) -> LaneTimes:
    """Runs of 100 tokens at these speeds, the first one in ten equal rounds."""
    first, *others = speeds
    rounds = (TimedRound(10, 1, 1, 10 / first, 0, 0, 0.0, 0.0),) * 10
    return LaneTimes(rounds, tuple(RunTime(100, 100 / speed) for speed in others))


def test_lanes_are_read_from_a_trace_with_their_repeats():
    head = {"type": "header", "lane": 0, "method": {"key": "a", "title": "A"}}
    done = {
        "type": "done",
        "lane": 0,
        "totals": {"tokens": 10, "seconds": 1.0, "repeats": [{"tokens": 10, "seconds": 2.0}]},
    }
    assert lanes_of([head, done]) == [
        {
            "lane": 0,
            "key": "a",
            "title": "A",
            "knobs": {},
            "times": LaneTimes((), (RunTime(10, 1.0), RunTime(10, 2.0))),
        }
    ]
    assert lanes_of([head, {"type": "done", "lane": 0, "totals": {}}]) == []
