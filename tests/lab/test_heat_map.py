"""The heat map: measured and predicted speed over draft length and temperature, with progress, stop and
export."""

from __future__ import annotations

import csv
import io

import pytest

from specviz import lab
from specviz.core import Knob, Method
from specviz.lab.heat_map import COLUMNS, length_knob, report
from specviz.lab.timed_runs import TimedRun
from specviz.run.request import SessionError
from specviz.trace.metrics import Totals

from ..run.fakes import FakeLoaded

ASKED = {
    "method": "speculative",
    "prompt": "the cat",
    "lengths": [1, 3],
    "temperatures": [0.0, 1.0],
    "max_new_tokens": 6,
}


def ask(payload, stop=bool):
    return [one for one in lab.answer("heat_map", payload, FakeLoaded(), stop) if isinstance(one, dict)]


def test_every_cell_is_measured_and_predicted_with_progress():
    parts = ask(ASKED)
    assert (
        [one["done"] for one in parts] == list(range(1, 13))
        and parts[-1]["of"] == 12
        and parts[-1]["knob"] == "gamma"
    )
    cells = parts[-1]["cells"]
    assert [(c["draft_length"], c["temperature"]) for c in cells] == [(1, 0.0), (3, 0.0), (1, 1.0), (3, 1.0)]
    assert all(c["tokens_per_second"] > 0 and c["predicted_speedup"] > 0 for c in cells)
    exported = list(csv.DictReader(io.StringIO(parts[-1]["csv"])))
    assert (
        len(exported) == 4 and set(exported[0]) == set(COLUMNS) and float(exported[3]["temperature"]) == 1.0
    )


def test_a_stop_ends_with_what_was_measured():
    left = iter([False, False, True])
    parts = ask(ASKED, lambda: next(left))
    assert parts[-1]["done"] == 2 and any(cell["walltime_speedup"] is None for cell in parts[-1]["cells"])


def test_the_prediction_is_the_formula():
    def run(tokens, rounds, seconds, accepted=0, tried=0):
        return TimedRun(
            Totals(
                tokens=tokens,
                rounds=rounds,
                accepted=accepted,
                tried=tried,
                phase_seconds={"verify": seconds},
            )
        )

    found = {(None, 0.0): [run(10, 10, 10.0)], (2, 0.0): [run(20, 10, 20.0, accepted=10, tried=20)]}
    cell = report(Method("m", "M", "", ""), Knob("gamma", 4, 1, 16, ""), [2], [0.0], found, 2, 2)["cells"][0]
    assert cell["predicted_speedup"] == pytest.approx((1 + 0.5 + 0.25) / 2)
    assert cell["walltime_speedup"] is None  # totals alone, without rounds, name no speed-up


@pytest.mark.parametrize(
    "payload",
    [
        {"lengths": []},
        {"lengths": list(range(1, 12))},
        {"lengths": [99]},
        {"lengths": "x"},
        {"temperatures": [3]},
        {"temperatures": ["hot"]},
        {"method": "autoregressive"},
        {"max_new_tokens": 10**6},
    ],
)
def test_malformed_questions_are_refused(payload):
    with pytest.raises(SessionError):
        ask(ASKED | payload)


def test_the_length_knob_is_found_for_every_kind_of_draft():
    from specviz.methods import catalogue

    assert length_knob(catalogue()["speculative"]).name == "gamma" and length_knob(
        catalogue()["jacobi"]
    ).name in ("block", "gamma", "window")
