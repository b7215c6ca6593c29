"""A race over one's own prompts: medians with intervals, runs paired with plain decoding's, progress and
stop."""

from __future__ import annotations

import random
from base64 import b64decode
from statistics import median

import pytest

from specviz import lab
from specviz.lab import prompt_set
from specviz.run.request import SessionError
from specviz.trace.files import Trace
from specviz.trace.speed import CONFIDENCE, lane_times, median_interval

from ..run.fakes import FakeLoaded

ASKED = {
    "prompts": ["the cat", "a dog", "one two"],
    "methods": ["speculative", "prompt_lookup"],
    "max_new_tokens": 6,
}


def ask(payload, stop=bool):
    return [one for one in lab.answer("prompt_set", payload, FakeLoaded(), stop) if isinstance(one, dict)]


def test_every_prompt_runs_on_every_method_beside_plain_decoding():
    parts = ask(ASKED)
    assert [one["done"] for one in parts] == [1, 2, 3] and parts[-1]["of"] == 3
    last = parts[-1]
    assert [row["method"] for row in last["rows"]] == ["autoregressive", "speculative", "prompt_lookup"]
    assert len(last["runs"]) == 9 and {run["prompt"] for run in last["runs"]} == {0, 1, 2}
    for row in last["rows"]:
        mine = [run["block_efficiency"] for run in last["runs"] if run["method"] == row["method"]]
        assert row["block_efficiency"] == [median(mine), min(mine), max(mine)] and row["prompts"] == 3
    assert last["rows"][0]["rows_per_pass"] == [1.0, 1.0, 1.0]  # plain decoding passes the root alone
    assert 1 < last["rows"][1]["rows_per_pass"][0] <= 1 + 4
    assert last["rows"][0]["walltime_speedup"][0] == 1.0 == last["rows"][0]["block_efficiency"][0]


def test_a_method_with_two_settings_is_two_rows():
    twice = [
        {"method": "speculative", "knobs": {"gamma": 1}},
        {"method": "speculative", "knobs": {"gamma": 6}},
    ]
    rows = ask(ASKED | {"methods": [*twice, "speculative"]})[-1]["rows"]
    keys = [row["method"] for row in rows]
    assert keys == ["autoregressive", "speculative gamma=1", "speculative gamma=6", "speculative"]
    assert (
        rows[1]["block_efficiency"][1] <= rows[2]["block_efficiency"][1]
        and len({r["title"] for r in rows}) == 4
    )


def test_draws_of_a_sampled_set_have_seeds_of_their_own_and_greedy_has_one():
    asked = ASKED | {"temperature": 1, "seed": 7, "seeds": 2, "methods": ["speculative"]}
    last = ask(asked)[-1]
    assert last["of"] == 6 and {run["seed"] for run in last["runs"]} == {7, 8}
    assert ask(asked | {"temperature": 0})[-1]["of"] == 3


def test_a_set_goes_on_where_it_was_left():
    rest = ask(ASKED | {"from": 2})
    assert [one["done"] for one in rest] == [3] and {run["prompt"] for run in rest[0]["runs"]} == {2}


def test_a_stop_keeps_the_prompts_that_are_done():
    left = iter([False] * 4 + [True])
    assert ask(ASKED, lambda: next(left))[-1]["done"] == 1


def test_the_interval_covers_the_median_as_often_as_it_says():
    rng = random.Random(1)
    hits = 0
    rounds = 2000
    for _ in range(rounds):
        low, high, confidence = median_interval([rng.expovariate(1.0) for _ in range(15)])
        assert confidence >= CONFIDENCE
        hits += low <= 0.6931 <= high
    assert abs(hits / rounds - confidence) < 0.02
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0, 0.75)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompts": []},
        {"prompts": ["x"] * 25},
        {"prompts": [3]},
        {"prompts": "x"},
        {"methods": []},
        {"methods": ["nope"]},
        {"methods": ["speculative"] * 7},
        {"methods": [{"method": "speculative", "knobs": {"nope": 1}}]},
        {"methods": [{"method": "speculative", "knobs": 3}]},
        {"methods": [{"knobs": {}}]},
        {"seeds": 6},
        {"from": 3},
        {"prompts": ["x"] * 24, "methods": ["speculative"], "temperature": 1, "seeds": 9},
        {"methods": [1]},
        {"max_new_tokens": 0},
    ],
)
def test_what_cannot_be_asked_is_refused(wrong):
    with pytest.raises(SessionError):
        ask(ASKED | wrong)


def test_the_last_answer_of_a_set_has_a_trace_of_each_prompt(tmp_path):
    left = iter([False] * 7 + [True])  # a lane of the third prompt has run
    parts = ask(ASKED | {"traces": True}, lambda: next(left))
    assert [("traces" in one, one["done"]) for one in parts] == [(False, 1), (False, 2), (True, 2)]
    for number, kept in enumerate(parts[-1]["traces"]):
        path = tmp_path / "trace.jsonl.gz"
        path.write_bytes(b64decode(kept["file"]))
        records = Trace.load(path).records
        heads = [r for r in records if r["type"] == "header"]
        assert kept["prompt"] == number and kept["seed"] == 0
        assert {r["prompt"]["text"] for r in heads} == {ASKED["prompts"][number]}
        assert [r["method"]["key"] for r in heads] == ["autoregressive", "speculative", "prompt_lookup"]
        assert [len(lane_times(records, lane).rounds) > 0 for lane in range(3)] == [True] * 3
    assert "traces" not in ask(ASKED)[-1]


def test_traces_that_do_not_fit_are_left_out(monkeypatch):
    monkeypatch.setattr(prompt_set, "MOST_TRACES", 1)
    assert "traces" not in ask(ASKED | {"traces": True})[-1]
