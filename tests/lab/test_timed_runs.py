"""Runs during which other processes took the CPU: their times are left out of every measurement of the Lab
while others remain."""

from __future__ import annotations

import pytest

from specviz import lab
from specviz.lab import heat_map, prompt_set, sweep
from specviz.lab.timed_runs import TimedRun, TimedRuns
from specviz.run.machine import Machine
from specviz.trace.events import Checked
from specviz.trace.metrics import Totals

from ..run.fakes import FakeLoaded

SPEC = {"method": "speculative", "prompt": "the cat", "max_new_tokens": 6}
QUESTIONS = {
    "sweep": SPEC | {"knob": "gamma", "values": [1, 3]},
    "heat_map": SPEC | {"lengths": [1, 3], "temperatures": [0.0]},
    "prompt_set": {"prompts": ["the cat", "a dog", "one"], "methods": ["speculative"], "max_new_tokens": 6},
}


def answers(name, monkeypatch, disturbed):
    """The last part of an answer; the n-th measured run is disturbed where ``disturbed(n)``, and then takes
    a thousand times as long."""
    made = iter(range(1000))

    class Runs(TimedRuns):
        def run(self, session, prompt, length):
            if length == 8:
                return super().run(session, prompt, length)
            slow = disturbed(next(made))
            return TimedRun(
                Totals(tokens=6, rounds=3, phase_seconds={"verify": 600.0 if slow else 0.6}), slow
            )

    for module in (sweep, heat_map, prompt_set):
        monkeypatch.setattr(module, "TimedRuns", Runs)
    return [part for part in lab.answer(name, QUESTIONS[name], FakeLoaded(), bool) if isinstance(part, dict)][
        -1
    ]


def rows_of(answer):
    return answer.get("cells") or answer["rows"]


def speed(row):
    found = row["tokens_per_second"]
    return found[0] if isinstance(found, list) else found


@pytest.mark.parametrize("name", QUESTIONS)
def test_times_of_disturbed_runs_are_left_out(monkeypatch, name):
    answer = answers(name, monkeypatch, lambda n: n == 1)
    assert all(not row["busy"] and speed(row) == pytest.approx(10.0) for row in rows_of(answer))
    assert all(row["walltime_speedup"] in (1.0, [1.0, 1.0, 1.0]) for row in rows_of(answer))
    assert (
        sum(run["busy"] for run in answer["runs"]) >= 1
        if name == "prompt_set"
        else answer["disturbed"] == 1 < answer["runs"]
    )


@pytest.mark.parametrize("name", QUESTIONS)
def test_where_all_were_disturbed_no_time_counts(monkeypatch, name):
    answer = answers(name, monkeypatch, lambda n: True)
    assert all(row["busy"] for row in rows_of(answer))


def test_a_busy_machine_disturbs_the_run_that_it_is_seen_in(monkeypatch):
    from specviz.run.session import Session

    monkeypatch.setattr(Machine, "start_events", lambda self: [])
    monkeypatch.setattr(Machine, "observe", lambda self, lane, event: [])
    loaded = FakeLoaded()
    timed, session = TimedRuns(loaded), Session(loaded, "autoregressive")
    assert not timed.run(session, "the cat", 4).disturbed
    with monkeypatch.context() as patch:
        patch.setattr(Machine, "observe", lambda self, lane, event: [Checked("busy", {})])
        assert timed.run(session, "the cat", 4).disturbed
    assert not timed.run(session, "the cat", 4).disturbed
    monkeypatch.setattr(Machine, "start_events", lambda self: [Checked("busy", {})])
    assert TimedRuns(loaded).run(session, "the cat", 4).disturbed
