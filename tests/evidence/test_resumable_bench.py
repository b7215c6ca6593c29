"""A measurement over several sittings: what is there is not measured again, what is torn is, and what is
other is left alone."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from specviz import load
from specviz.core import Sampling
from specviz.evidence.bench_ledger import BenchSession, Ledger, Requested, comparable, progress_of
from specviz.evidence.benchmark import Plan
from specviz.evidence.prompt_suites import Item, read_suites
from specviz.evidence.resumable_bench import GROUP_SIZE, measure_missing, run_groups, run_session, turns
from specviz.run.request import SessionError
from specviz.run.result import Result, RunFailed
from specviz.trace.metrics import Totals

from ..message_codes import refuses

ITEMS = [Item("a", "p", number=1), Item("a", "q", number=2), Item("b", "r", number=3)]
NAMES = ["plain", *(f"m{n}" for n in range(11))]
MACHINE = {"machine": "a clock, 2 cores", "threads": 2}


class Bench:
    """Scripted runners on a clock of their own: every run takes a second."""

    def __init__(self, names=NAMES, breaks=(), interrupt=None):
        self.now = 0.0
        self.calls = []
        self.breaks = set(breaks)
        self.interrupt = interrupt
        self.plan = Plan({name: self.runner(name) for name in names}, ITEMS, "s", "mark", {}, 0)

    def runner(self, name):
        def run(prompt, sampling, length):
            self.calls.append((name, prompt, sampling.seed, length))
            self.now += 1
            if len(self.calls) == self.interrupt:
                raise KeyboardInterrupt
            if name in self.breaks:
                raise RunFailed("It tripped.")
            return Result(
                [1], list(range(length)), "length", Totals(length, 2, phase_seconds={"verify": 1.0}), 0.5
            )

        return run

    def run_session(
        self, path, settings=None, machine=MACHINE, repeats=2, seconds=1e9, sampling=Sampling(seed=3)
    ):
        ledger = Ledger(path)
        ledger.prepare()
        asked = Requested(tuple(self.plan.runners), tuple((i.number, i.task) for i in ITEMS), repeats, "s")
        bench_session = BenchSession("2026-01-01T00:00:00", settings or {"temperature": 0}, machine, asked)
        stopped = measure_missing(
            ledger, bench_session, self.plan, repeats, 20, sampling, seconds, True, lambda: self.now
        )
        return stopped, progress_of(comparable(ledger.sessions, bench_session.settings, machine), asked)


def runs(path):
    run_groups = [leg for one in Ledger(path).sessions for leg in one.run_groups]
    return Counter((leg.prompt, leg.task, leg.repeat, run.method) for leg in run_groups for run in leg.runs)


def test_turns_come_breadth_first():
    assert [f"{item.prompt}{repeat}" for item, repeat in turns(ITEMS, 2)] == [
        "p1",
        "r1",
        "q1",
        "p2",
        "r2",
        "q2",
    ]


@pytest.mark.parametrize("count", [0, 1, GROUP_SIZE, GROUP_SIZE + 1, 125])
def test_no_method_is_far_from_plain_decoding_and_none_is_left_out(count):
    names = [f"m{n}" for n in range(count)]
    cut = run_groups(["plain", *names], "plain", random.Random(1))
    assert sorted(name for leg in cut for name in leg if name != "plain") == sorted(names)
    assert len(cut) == max(1, -(-count // GROUP_SIZE))
    for leg in cut:
        place = leg.index("plain")
        assert leg.count("plain") == 1 and max(place, len(leg) - 1 - place) <= GROUP_SIZE / 2
    assert not run_groups([], "plain", random.Random(1))


def test_sittings_that_go_on_measure_what_one_sitting_measures(tmp_path):
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    every = Bench()
    stopped, at = every.run_session(whole)
    assert (
        not stopped
        and (at.runs, at.of, at.turns, at.of_turns) == (72, 72, 6, 6)
        and at.hours == pytest.approx(90 / 3600)
    )
    one = Bench()
    one.run_session(parts, seconds=30)  # its warm-up runs count, and no leg begins later
    first = runs(parts)
    assert 0 < sum(first.values()) < 66
    two = Bench(interrupt=40)
    stopped, at = two.run_session(parts)
    assert stopped and at.runs < at.of
    with parts.open("ab") as file:  # killed while it wrote
        file.write(parts.read_bytes().splitlines()[-1][:-30])
    last = Bench()
    stopped, at = last.run_session(parts)
    assert not stopped and at.runs == at.of == 72 and "72" in str(at)
    assert runs(parts) == runs(whole) and set(runs(whole).values()) == {1} and first <= runs(parts)
    assert seeds(one, two, last) == seeds(every)  # the same draws, too
    again = Bench()
    assert (
        again.run_session(parts)[1].runs == 72 and not again.calls
    )  # nothing is left, and nothing is warmed up


def seeds(*sessions):
    return {(prompt, seed) for bench in sessions for _, prompt, seed, length in bench.calls if length == 20}


def test_every_method_warms_up_once_a_sitting_before_its_first_leg(tmp_path):
    bench = Bench()
    bench.run_session(tmp_path / "f.jsonl")
    short = [name for name, _, _, length in bench.calls if length != 20]
    assert sorted(short) == sorted(NAMES)
    assert all([length for name, _, _, length in bench.calls if name == one][0] != 20 for one in NAMES)


def test_a_torn_line_is_dropped_and_a_file_of_others_is_left_alone(tmp_path):
    path = tmp_path / "f.jsonl"
    Bench().run_session(path, seconds=30)
    before = path.read_bytes()
    path.write_bytes(before + b'{"sitt')
    assert len(Ledger(path).sessions) == 1 and path.read_bytes() != before  # reading cuts nothing
    Ledger(path).prepare()
    assert path.read_bytes() == before
    for text in (
        b"my notes",
        b"my notes\n",
        before + b"more\n",
        before + b'{"sitting": "x", "leg": {}}\n',
        b'{"sitting": 1}\n',
    ):
        path.write_bytes(text)
        with refuses(SessionError, "ledger.line"):
            Ledger(path)
        assert path.read_bytes() == text
    with refuses(SessionError, "ledger.read"):
        Ledger(tmp_path / "none.jsonl", there=True)


def test_other_settings_and_other_machines_are_kept_apart(tmp_path):
    path = tmp_path / "f.jsonl"
    Bench(["plain", "m0"]).run_session(path)
    for settings, machine in (({"temperature": 1}, MACHINE), (None, {**MACHINE, "threads": 1})):
        bench = Bench(["plain", "m0"])
        _, at = bench.run_session(path, settings, machine)
        assert (
            at.runs == at.of == 12 and len(bench.calls) == 2 + 12
        )  # none of the others' runs was taken for its own
    assert [len(one.run_groups) for one in Ledger(path).sessions] == [6, 6, 6]
    bench = Bench(["plain", "m0", "m1"])  # more is asked for: only that is measured
    bench.run_session(path, repeats=3)
    assert Counter(name for name, _, _, length in bench.calls if length == 20) == {
        "plain": 9,
        "m0": 3,
        "m1": 9,
    }


def test_a_method_that_breaks_is_written_down_and_made_again(tmp_path):
    path = tmp_path / "f.jsonl"
    _, at = Bench(["plain", "m0", "m1"], breaks=["m1"]).run_session(path)
    assert (at.runs, at.of, at.failed) == (12, 18, {"m1": 6}) and "m1 (6)" in str(at)
    mended = Bench(["plain", "m0", "m1"])
    assert mended.run_session(path)[1].failed == {} and "m0" not in {name for name, *_ in mended.calls}
    with pytest.raises(RunFailed, match="tripped"):
        Bench(["plain", "m0"], breaks=["plain"]).run_session(tmp_path / "g.jsonl")


def test_the_mark_of_a_suite_is_that_of_what_it_says(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps({"a": ["x", "y"], "b": ["z"]}))
    items, mark = read_suites([file])
    assert [item.number for item in items] == [1, 2, 3] and read_suites([file, file])[0][5].number == 6
    file.write_text(json.dumps({"a": ["x", "y"], "b": ["w"]}))
    assert len({mark, read_suites([file])[1], read_suites([None, file])[1]}) == 3


def test_on_a_real_pair(at_home, tmp_path):
    path, loaded = tmp_path / "f.jsonl", load()
    asked = {"tasks": ["chat", "math"], "prompts": 1, "max_new_tokens": 8, "quiet": True}
    first = run_session(loaded, ["prompt_lookup"], Ledger(path), repeats=1, **asked)
    assert (first["runs"], first["of"], first["interrupted"]) == (4, 4, False)
    report = run_session(loaded, ["prompt_lookup", "speculative"], Ledger(path), repeats=1, **asked)
    assert (report["runs"], report["of"], report["turns"]) == (6, 6, 2) and str(path) in report["said"]
    found = [run for one in Ledger(path).sessions for leg in one.run_groups for run in leg.all_runs()]
    assert all(run.same and run.tokens and run.seconds > 0 for run in found) and len(found) == 8
    sampled = run_session(
        loaded,
        ["speculative"],
        Ledger(path),
        repeats=1,
        sampling=replace(Sampling(), temperature=1.0),
        **asked,
    )
    assert sampled["runs"] == sampled["of"] == 4 and "hours" in sampled
    with refuses(SessionError, "bench.minutes"):
        run_session(loaded, ["speculative"], Ledger(path), minutes=0, **asked)
