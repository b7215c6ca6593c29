"""The Lab's measurements name speeds by the statistic of trace/speed.py: an interrupted pass counts as a usual
one, and where the times say too little no speed is named."""

from __future__ import annotations

import pytest

from specviz import lab
from specviz.lab import heat_map, prompt_set, sweep
from specviz.lab.timed_runs import TimedRun, TimedRuns
from specviz.trace.metrics import Totals
from specviz.trace.speed import TimedRound

from ..run.fakes import FakeLoaded

SPEC = {"method": "speculative", "prompt": "the cat", "max_new_tokens": 6}
QUESTIONS = {
    "sweep": SPEC | {"knob": "gamma", "values": [1, 3]},
    "heat_map": SPEC | {"lengths": [1, 3], "temperatures": [0.0]},
    "prompt_set": {"prompts": ["the cat", "a dog", "one"], "methods": ["speculative"], "max_new_tokens": 6},
}


def answers(name, monkeypatch, seconds, count=10):
    """The last part of an answer; ``seconds(n, i)``: of the i-th pass of the n-th measured run."""
    made = iter(range(1000))

    class Runs(TimedRuns):
        def run(self, session, prompt, length, watch=iter):
            if length == 8:
                return super().run(session, prompt, length)
            n = next(made)
            rounds = [TimedRound(1, 1, 1, seconds(n, i), 0, 0, 0.0, 0.0) for i in range(count)]
            whole = sum(r.verify for r in rounds)
            return TimedRun(
                Totals(tokens=count, rounds=count, phase_seconds={"verify": whole}, timed_rounds=rounds)
            )

    for module in (sweep, heat_map, prompt_set):
        monkeypatch.setattr(module, "TimedRuns", Runs)
    return [part for part in lab.answer(name, QUESTIONS[name], FakeLoaded(), bool) if isinstance(part, dict)][
        -1
    ]


def rows_of(answer):
    return answer.get("cells") or answer["rows"]


def middle(found):
    return found[0] if isinstance(found, list) else found


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_interrupted_pass_counts_as_a_usual_one(monkeypatch, name):
    answer = answers(name, monkeypatch, lambda n, i: 1.0 if (n, i) == (1, 4) else 0.1)
    for row in rows_of(answer):
        assert row["named"] and middle(row["tokens_per_second"]) == pytest.approx(10.0)
        assert middle(row["walltime_speedup"]) == pytest.approx(1.0)
    assert answer["replaced"] == 1 < answer["passes"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_where_the_times_say_too_little_no_speed_is_named(monkeypatch, name):
    answer = answers(name, monkeypatch, lambda n, i: 0.1 * 4 ** (n % 5), count=3)
    unnamed = [row for row in rows_of(answer) if not row["named"]]
    assert unnamed and all(row["walltime_speedup"] is None for row in unnamed)
