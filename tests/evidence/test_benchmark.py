"""The benchmark: pairing, shuffling, figures, suites, and transformers' own decoding beside ours."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from specviz import ROOT as HERE
from specviz import load
from specviz.core import Sampling
from specviz.core.needs import missing_reason
from specviz.evidence import pass_times as pass_times_module
from specviz.evidence.benchmark import MEAN, bench, measure, quartiles, rows, with_earlier_answers
from specviz.evidence.pass_times import COLUMNS as PASS_COLUMNS
from specviz.evidence.pass_times import PACKED, can_time, own_bytes, own_pass, pass_times
from specviz.evidence.prompt_suites import Item, read_suite, select_items
from specviz.models import llama
from specviz.models.linear import Layout, PlainLinear, TransposedLinear
from specviz.run.request import SessionError
from specviz.run.result import Result, collect
from specviz.run.session import Session
from specviz.targets.fast import FastModel
from specviz.targets.int8 import Int8Model
from specviz.targets.llama import LlamaTarget
from specviz.trace.files import Trace
from specviz.trace.metrics import Totals

from ..message_codes import refuses
from ..targets.tiny import checkpoint

TASKS = ["story", "edit", "chat", "math", "code", "prose"]


def fake(calls, name, seconds):
    def run(prompt, sampling, length):
        calls.append((name, prompt, sampling.seed, length))
        totals = Totals(
            tokens=length,
            rounds=length // 2,
            tried=10,
            accepted=5,
            phase_seconds={"verify": seconds(len(calls)) * length},
        )
        return Result([1], list(range(length)), "length", totals, 0.9 * totals.seconds)

    return run


def test_every_run_is_paired_with_plain_decoding_in_a_shuffled_order():
    calls = []
    runners = {
        "plain": fake(calls, "plain", lambda _: 0.2),
        "fast": fake(calls, "fast", lambda _: 0.1),
        "slow": fake(calls, "slow", lambda _: 0.4),
    }
    items = [Item("a", "p"), Item("a", "q"), Item("b", "r")]
    cells, interrupted = measure(runners, items, 4, 20, Sampling(seed=5), quiet=True)
    assert not interrupted and [c[0] for c in calls[:3]] == list(runners)  # warm-up, short and thrown away
    assert {c[3] for c in calls[:3]} != {20}
    timed = calls[3:]
    orders = [tuple(c[0] for c in timed[i : i + 3]) for i in range(0, len(timed), 3)]
    assert len(orders) == 12 and all(sorted(o) == sorted(runners) for o in orders) and len(set(orders)) > 2
    for i in range(0, len(timed), 3):  # same prompt, same seed
        assert len({c[1:] for c in timed[i : i + 3]}) == 1
    assert len({c[2] for c in timed}) == 12
    report = {(r["method"], r["task"]): r for r in rows(cells, greedy=True)}
    assert report["fast", "a"]["walltime_speedup"] == pytest.approx(2) and report["slow", MEAN][
        "walltime_speedup"
    ] == pytest.approx(0.5)
    assert (
        report["fast", "a"]["spread"] == pytest.approx([2, 2])
        and report["plain", "b"]["walltime_speedup"] == 1
    )
    assert report["fast", "a"]["runs"] == 8 and report["fast", MEAN]["runs"] == 12
    assert report["fast", "a"]["block_efficiency"] == 2 and report["fast", "a"]["acceptance_rate"] == 0.5
    assert report["fast", "a"]["tokens_per_second"] == pytest.approx(10)
    assert (
        report["fast", "a"]["overhead_share"] == pytest.approx(0.1)
        and report["fast", "a"]["same_tokens"] == 1
    )
    again = []
    measure({n: fake(again, n, lambda _: 1.0) for n in runners}, items, 4, 20, Sampling(seed=5), quiet=True)
    assert again == calls  # the same seed, the same order


def test_the_median_of_pairs_ignores_one_bad_moment():
    calls = []
    runners = {
        "plain": fake(calls, "plain", lambda n: 0.2 * (9 if 20 < n < 23 else 1)),
        "fast": fake(calls, "fast", lambda _: 0.1),
    }
    cells, _ = measure(runners, [Item("a", "p")], 30, 20, Sampling(), quiet=True)
    assert {r["method"]: r["walltime_speedup"] for r in rows(cells, True) if r["task"] == "a"}[
        "fast"
    ] == pytest.approx(2)


def test_the_mean_over_tasks_is_the_plain_mean_of_their_figures():
    calls = []
    speed = {"p": 0.2, "q": 0.05}
    runners = {
        "plain": fake(calls, "plain", lambda _: 0.2),
        "m": lambda prompt, s, n: fake([], "m", lambda _: speed[prompt])(prompt, s, n),
    }
    cells, _ = measure(runners, [Item("a", "p"), Item("b", "q")], 2, 10, Sampling(), quiet=True)
    mine = {r["task"]: r for r in rows(cells, True) if r["method"] == "m"}
    assert mine["a"]["walltime_speedup"] == pytest.approx(1) and mine["b"][
        "walltime_speedup"
    ] == pytest.approx(4)
    assert mine[MEAN]["walltime_speedup"] == pytest.approx(2.5) and mine[MEAN]["spread"] == pytest.approx(
        [2.5, 2.5]
    )


def test_ctrl_c_reports_what_there_is():
    calls = []

    def tired(prompt, sampling, length):
        if len(calls) > 8:
            raise KeyboardInterrupt
        return fake(calls, "tired", lambda _: 1.0)(prompt, sampling, length)

    cells, interrupted = measure({"plain": tired}, [Item("a", "p")], 99, 20, Sampling(), quiet=True)
    assert interrupted and cells["plain", "a"].runs == 8


def test_runs_that_wrote_nothing_have_no_ratio():
    empty = lambda prompt, sampling, length: Result([1], [], "stop", Totals())  # noqa: E731
    cells, _ = measure({"plain": empty}, [Item("a", "p")], 2, 4, Sampling(), quiet=True)
    assert rows(cells, True)[0]["walltime_speedup"] is None and rows(cells, True)[1]["spread"] == [None, None]
    assert (
        quartiles([]) == [None] * 3
        and quartiles([2.0]) == [2.0] * 3
        and quartiles([1.0, 2.0, 3.0]) == [1.5, 2, 2.5]
    )


def test_on_a_real_pair_with_transformers_beside(at_home):
    report = bench(
        load(),
        ["speculative", "prompt_lookup"],
        repeats=1,
        prompts=1,
        tasks=["chat", "math"],
        max_new_tokens=8,
        reference=True,
        quiet=True,
    )
    by = {(r["method"], r["task"]): r for r in report["rows"]}
    assert {m for m, _ in by if not m.startswith("llama_cpp")} == {
        "autoregressive",
        "speculative",
        "prompt_lookup",
        "transformers_generate",
        "transformers_assisted",
        "transformers_prompt_lookup",
    }
    for (_, _), row in by.items():
        assert row["same_tokens"] == 1  # greedy, same weights: also transformers writes what we write
        assert 0 <= row["overhead_share"] < 1
    assert (
        by["autoregressive", "chat"]["block_efficiency"]
        == 1
        == by["transformers_generate", "chat"]["block_efficiency"]
    )
    env = report["environment"]
    assert (
        env["prompts"] == 2
        and env["max_new_tokens"] == 8
        and env["skipped"] == {}
        and env["draft"]["name"] == "tiny-draft"
    )
    json.dumps(report, allow_nan=False)


@pytest.mark.thorough
def test_sampling_with_transformers_beside(at_home):
    report = bench(
        load(),
        ["speculative"],
        repeats=1,
        prompts=1,
        tasks=["chat"],
        max_new_tokens=6,
        sampling=Sampling(0.9, 0, 0.95, 3),
        reference=True,
        quiet=True,
    )
    assert all(row["same_tokens"] is None and row["tokens"] >= 0 for row in report["rows"])
    assert report["environment"]["temperature"] == 0.9


def test_methods_that_cannot_run_are_named(at_home):
    report = bench(
        load(draft="none"),
        ["speculative", "prompt_lookup"],
        repeats=1,
        prompts=1,
        tasks=["chat"],
        max_new_tokens=4,
        quiet=True,
    )
    assert missing_reason("draft", "tiny") in report["environment"]["skipped"]["speculative"]
    assert {r["method"] for r in report["rows"]} == {"autoregressive", "prompt_lookup"}
    with refuses(SessionError, "method.missing"):
        bench(load(draft="none"), ["speculative"], quiet=True)


def test_knobs_are_used_and_every_measured_run_leaves_its_trace(at_home, tmp_path):
    report = bench(
        load(),
        ["speculative"],
        repeats=2,
        prompts=1,
        tasks=["chat"],
        max_new_tokens=6,
        quiet=True,
        knobs={"speculative": {"gamma": 2}},
        traces=tmp_path / "traces",
    )
    names = sorted(file.name for file in (tmp_path / "traces").iterdir())
    methods = ("autoregressive", "speculative")
    assert names == sorted(f"{n:04}-{method}.jsonl.gz" for n in (1, 2) for method in methods)
    ours = Trace.load(tmp_path / "traces" / "0001-speculative.jsonl.gz")
    assert ours.header()["knobs"]["gamma"] == 2 and ours.totals()["tokens"] == 6
    assert max(len(draft["nodes"]) for draft in ours.of("draft")) <= 2
    assert {row["runs"] for row in report["rows"]} == {2}


def test_prompts_that_do_not_fit_are_left_out_and_counted(at_home, tmp_path):
    suite = tmp_path / "s.yaml"
    suite.write_text(json.dumps({"a": ["the cat", "cat " * 400]}))
    report = bench(load(), ["autoregressive"], suite, repeats=1, max_new_tokens=4, quiet=True)
    assert (report["environment"]["prompts"], report["environment"]["too_long"]) == (1, 1)
    with refuses(SessionError, "suite.too_long", 250, 256):
        bench(load(), ["autoregressive"], suite, max_new_tokens=250, quiet=True)


def test_our_own_suite():
    items = read_suite()
    assert Counter(i.task for i in items) == dict.fromkeys(TASKS, 6)
    assert len({i.prompt for i in items}) == 36 and all(len(i.prompt) < 700 for i in items)
    assert (HERE / "assets" / "prompts" / "bench.yaml").is_file()


def test_second_turns_stand_on_plain_decodings_answers(at_home, tmp_path):
    suite = tmp_path / "turns.jsonl"
    turns = ["the cat sat", "write it again"]
    suite.write_text(
        json.dumps({"category": "rewrite", "turns": turns})
        + "\n"
        + json.dumps({"category": "long", "turns": ["cat " * 400, "x"]})
    )
    assert read_suite(suite) == [Item("rewrite", turns[1], (turns[0],)), Item("long", "x", ("cat " * 400,))]
    loaded = load()
    runners = {"autoregressive": SimpleNamespace(session=Session(loaded, "autoregressive"))}
    (item,) = with_earlier_answers(runners, read_suite(suite), 8)
    first = collect(Session(loaded, "autoregressive").run(turns[0], 8)).text
    assert item.prompt == [
        {"role": "user", "content": turns[0]},
        {"role": "assistant", "content": first},
        {"role": "user", "content": turns[1]},
    ]
    report = bench(
        loaded,
        ["copyspec"],
        [suite, "ours"],
        tasks=["rewrite", "chat"],
        prompts=1,
        repeats=1,
        max_new_tokens=8,
        quiet=True,
    )
    assert (
        report["environment"]["prompts"] == 2 and report["environment"]["suite"] == "turns.jsonl, bench.yaml"
    )
    assert {r["task"] for r in report["rows"]} == {"rewrite", "chat", MEAN} and all(
        r["same_tokens"] == 1 for r in report["rows"]
    )


def test_choosing_from_a_suite():
    items = [Item("a", "1"), Item("b", "2"), Item("a", "3"), Item("a", "4")]
    assert select_items(items) == [items[0], items[2], items[3], items[1]]
    assert select_items(items, ["b"]) == [items[1]] and select_items(items, [], 1) == [items[0], items[1]]
    with refuses(SessionError, "suite.task", "'c'", "a, b"):
        select_items(items, ["c"])


@pytest.mark.parametrize(
    "name, data",
    [
        ("a.jsonl", b""),
        ("a.jsonl", b"[1]\n"),
        ("a.jsonl", b'{"task": "x"}\n'),
        ("a.jsonl", b'{"task": 3, "prompt": "x"}\n'),
        ("a.jsonl", b'{"task": "x", "prompt": " "}\n'),
        ("a.jsonl", b"\xff\xfe"),
        ("a.jsonl.gz", b"no gzip"),
        ("a.yaml", b"- x"),
        ("a.jsonl", b'{"category": "x", "turns": []}\n'),
        ("a.jsonl", b'{"category": "x", "turns": "abc"}\n'),
        ("a.jsonl", b'{"category": "x", "turns": ["a", 3]}\n'),
        ("a.yaml", b"x: ["),
        ("a.yaml", b"x: 3"),
        ("a.jsonl.gz", gzip.compress(b'{"task": "x", "prompt": "y"}', mtime=0)[:-9]),
    ],
)
def test_suites_that_are_none(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SessionError) as refused:
        read_suite(tmp_path / name)
    assert refused.value.code in ("suite.rows", "suite.read", "suite.empty_conversation")


def test_passes_of_this_forward_are_timed_beside_the_bound_of_memory(at_home):
    mine, packed, *others = pass_times(load(), repeats=2)
    assert [mine["engine"], packed["engine"]] == ["specviz", PACKED] and all(
        row["engine"].startswith("llama_cpp") for row in others
    )
    assert mine["weights_mb"] == round(own_bytes(load()) / 1e6, 1)
    assert set(PASS_COLUMNS) == set(mine) == set(packed) and all(
        row[name] > 0
        for row in (mine, packed)
        for name in PASS_COLUMNS
        if name not in ("engine", "weights_mb", "bandwidth_bound_ms")
    )


def test_a_pass_that_is_timed_runs_all_its_rows(at_home, monkeypatch):
    """Not the root from the pass before."""
    loaded, ran = load(), []
    forward = LlamaTarget._forward
    monkeypatch.setattr(
        LlamaTarget, "_forward", lambda self, rows: ran.append(len(rows.ids)) or forward(self, rows)
    )
    with ExitStack() as opened:
        run = own_pass(loaded, list(range(1, 40)), opened)
        ran.clear()
        for rows in (1, 2, 1, 5, 2):
            run(rows)
    assert ran == [1, 2, 1, 5, 2]


def test_what_was_measured_stays_when_the_timing_of_passes_is_stopped(at_home, monkeypatch):
    def stopped(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pass_times_module, "pass_times", stopped)
    report = bench(
        load(),
        ["autoregressive"],
        None,
        tasks=["code"],
        prompts=1,
        repeats=1,
        max_new_tokens=4,
        reference=True,
        quiet=True,
    )
    assert report["rows"] and report["environment"]["interrupted"] and "passes" not in report


def test_bytes_of_a_pass_are_those_of_the_layout_in_which_weights_are_held(tmp_path, monkeypatch):
    folder = checkpoint(tmp_path, "llama")

    def read(model):
        return own_bytes(SimpleNamespace(model=model))

    monkeypatch.setattr(llama, "fastest_layout", lambda weights, total: Layout())
    plain = FastModel(folder)
    numbers = (
        sum(
            layer.weight.numel()
            for block in plain.blocks
            for layer in (block.qkv, block.out, block.gate_up, block.down)
        )
        + plain.head.weight.numel()
    )
    assert read(plain) == 4 * numbers
    monkeypatch.setattr(
        llama,
        "fastest_layout",
        lambda weights, total: Layout({tuple(w.shape): (PlainLinear, TransposedLinear) for w in weights}),
    )
    assert read(FastModel(folder)) == 4 * numbers  # of two layouts a pass reads one
    # A byte each; heads and vocabularies of tiny models are padded to whole vectors.
    assert numbers < read(Int8Model(folder)) < 2 * numbers


@pytest.mark.parametrize(
    ("change", "able"),
    [
        ({}, True),
        ({"context": 128}, False),
        ({"capabilities": {"tree", "output:picture"}}, False),
        ({"device": SimpleNamespace(type="cuda")}, False),
    ],
)
def test_passes_are_timed_where_their_rows_fit_after_a_text(change, able):
    fields = {
        "context": 2048,
        "capabilities": {"tree", "output:text"},
        "device": SimpleNamespace(type="cpu"),
    } | change
    assert can_time(SimpleNamespace(**fields)) == able
