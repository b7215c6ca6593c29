"""The machine is watched while a run is under way: threads that fit, and a word where something else takes
the processor."""

from __future__ import annotations

import time

import pytest
import torch

from specviz.core.threads import set_thread_count, thread_count
from specviz.engine.engine import run_lanes
from specviz.engine.limits import BASELINE, RunRequest
from specviz.run import machine
from specviz.run.machine import Machine
from specviz.trace.events import Checked, Drafted, Finished, Started, Verified
from specviz.zoo import device

from .fakes import FakeLoaded


@pytest.fixture
def threads():
    before = thread_count()
    yield
    set_thread_count(before)


@pytest.fixture
def steady(monkeypatch):
    """A machine whose passes cost 10 ms."""
    monkeypatch.setattr(machine, "fit_threads", lambda measure, compiled: (1, 0.01))
    return Machine(FakeLoaded())


def passes(seconds, rows=1):
    at = 0.0
    for took in seconds:
        yield Drafted(0, at, at, ())
        yield Verified(0, at, at + took, rows)
        at += took


def kinds(watched, events, lane=0):
    return [check.kind for event in events for check in watched.observe(lane, event)]


def test_a_watched_run_is_a_lane_of_its_own_with_the_machine_in_its_header(steady):
    def watched(seconds):
        return list(steady.watch([Started({"env": {"cpu": "x"}}), *passes(seconds)]))

    first, second = watched([0.5]), watched([0.5])
    assert (
        [event.kind for event in first if isinstance(event, Checked)]
        == ["busy"]
        == [e.kind for e in second if isinstance(e, Checked)]
    )
    assert first[0].header["env"] == {
        "cpu": "x",
        "threads": 1,
        "pass_seconds": 0.01,
        "usual_pass_seconds": 0.01,
    }
    assert [type(event) for event in watched([0.01])] == [Started, Drafted, Verified]


def test_passes_at_their_usual_cost_are_not_reported(steady):
    assert (
        kinds(steady, passes([0.01, 0.02, 0.029] * 30))
        == []
        == kinds(steady, passes([0.06] * 30, rows=13), lane=1)
    )
    assert kinds(steady, [Finished("length", {}, None)]) == []


def test_one_long_stall_is_reported_at_once_and_once(steady):
    assert kinds(steady, passes([0.01] * 5 + [0.5] + [0.01] * 5 + [0.5])) == ["busy"]
    assert kinds(steady, passes([0.01] * 5), lane=1) == []  # the other lane was not hit


def test_small_stalls_are_reported_at_the_end_where_they_count(steady):
    assert kinds(steady, [*passes([0.01] * 10 + [0.04]), Finished("length", {}, None)]) == ["busy"]
    assert kinds(steady, [*passes([0.01] * 200 + [0.04]), Finished("length", {}, None)], lane=1) == []


def test_a_pass_beside_its_own_draft_is_no_sign(steady):
    assert kinds(steady, [Drafted(0, 0.0, 0.9, ()), Verified(0, 0.0, 1.0, 5)]) == []


def test_a_machine_that_is_slow_from_the_start_is_reported_with_the_header(monkeypatch):
    cost = iter([0.01, 0.05])
    monkeypatch.setattr(machine, "fit_threads", lambda measure, compiled: (1, next(cost)))
    loaded = FakeLoaded()
    assert Machine(loaded).start_events() == []
    assert [check.kind for check in Machine(loaded).start_events()] == [
        "busy"
    ] and loaded.pass_seconds == 0.01


def test_threads_are_chosen_anew_when_passes_turn_slow(monkeypatch):
    check = iter([(2, 0.01), (1, 0.012)])
    monkeypatch.setattr(machine, "fit_threads", lambda measure, compiled: next(check))
    monkeypatch.setattr(machine, "REST", -1.0)
    watched = Machine(FakeLoaded())
    assert kinds(watched, passes([0.04] * 3)) == ["threads"] and watched.threads == 1


def test_the_number_of_threads_with_the_quicker_passes_is_taken(monkeypatch, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(device, "physical_cores", lambda: 2)
    cost = {1: 0.005, 2: 0.015}  # with a page open: each of two threads waits for the other
    assert (
        device.fit_threads(lambda: cost[torch.get_num_threads()]) == (1, 0.005)
        and torch.get_num_threads() == 1
    )
    cost = {1: 0.005, 2: 0.003}
    assert (
        device.fit_threads(lambda: cost[torch.get_num_threads()]) == (2, 0.003)
        and torch.get_num_threads() == 2
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # whoever sets it has chosen
    assert device.fit_threads(lambda: 0.001) == (2, 0.001)


def test_a_run_that_must_come_again_has_as_many_threads_whatever_is_measured(monkeypatch, threads):
    monkeypatch.setattr(machine, "fit_threads", lambda measure, compiled: pytest.fail("the clock chose"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(device, "physical_cores", lambda: 2)
    loaded = FakeLoaded()
    loaded.deterministic = True
    watched = Machine(loaded)
    assert watched.threads == 2 == torch.get_num_threads()
    set_thread_count(1)  # as a run on another model leaves it
    assert Machine(loaded).threads == 2 == torch.get_num_threads()


def test_a_run_says_its_threads_and_that_the_machine_was_busy(monkeypatch, threads):
    loaded = FakeLoaded()
    loaded.pass_seconds = 1e-9  # as if it had been that quick at rest: every pass is slow
    ask = RunRequest("the cat sat", (("speculative", {}), (BASELINE, {})), max_new_tokens=12)
    records = [r for batch in run_lanes(loaded, ask, 60.0) for r in batch]
    heads = [r for r in records if r["type"] == "header"]
    assert all(
        h["env"]["threads"] == torch.get_num_threads() and h["env"]["usual_pass_seconds"] == 1e-9
        for h in heads
    )
    busy = [r for r in records if r["type"] == "check" and r["kind"] == "busy"]
    assert {r["lane"] for r in busy} == {0, 1}
    for lane in (0, 1):
        assert [r["seq"] for r in records if r["lane"] == lane] == list(
            range(sum(r["lane"] == lane for r in records))
        )
    from specviz import Trace

    Trace(records)


def test_measuring_a_pass_ends_soon_on_a_slow_model(monkeypatch):
    monkeypatch.setattr(machine, "PATIENCE", 0.0)
    monkeypatch.setattr(machine, "_one", lambda target: 7.0)
    began = time.monotonic()
    assert machine.pass_seconds(FakeLoaded()) == 7.0 and time.monotonic() < began + 5
