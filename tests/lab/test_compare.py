"""A race has one judge: ``/compare``, the notebook's table and the page (tests/viewer/cases_speed.js) come to the
same end on tests/vectors/races.json."""

from __future__ import annotations

from typing import Any

import pytest

from specviz.lab.compare import compare, lanes_of
from specviz.notebook.table import lane_rows
from specviz.run.turns import shuffled_turns
from specviz.trace.files import Trace
from specviz.trace.metrics import Totals
from specviz.trace.speed import TimedRound

from ..trace.race_records import CASES, race_records

BASELINE = "autoregressive"
EACH = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def close(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value if value is None else pytest.approx(value) for key, value in values.items()}


@EACH
def test_compare_judges_a_race_as_the_page_does(case: dict[str, Any]) -> None:
    found = compare(lanes_of(race_records(case)), BASELINE)
    assert found["winner"] == case["winner"]
    assert [row["key"] for row in found["rows"] if not row["bound"]] == case["order"]
    assert {row["key"]: row["walltime_speedup"] for row in found["rows"]} == close(case["speeds"])


@EACH
def test_the_notebooks_table_has_the_same_speeds(case: dict[str, Any]) -> None:
    lanes = case["lanes"][1:] + case["lanes"][:1]  # a notebook runs plain decoding last
    rows = lane_rows(Trace(race_records(case | {"lanes": lanes})))
    measured = {row["method"]: row["speed_up"] for row in rows if row["method"] in case["speeds"]}
    assert measured == close(case["speeds"])
    assert all(row["speed_up"] is None for row in rows if row["method"] not in case["speeds"])


def test_all_settings_have_a_run_in_each_turn() -> None:
    found = list(shuffled_turns("abcd", 50))
    assert all(sorted(turn) == list("abcd") for turn in found) and len(found) == 50
    assert len({tuple(turn) for turn in found}) > 10
    assert found == list(shuffled_turns("abcd", 50))
    assert found != list(shuffled_turns("abcd", 50, 1))


def test_an_interrupted_pass_counts_as_a_usual_one_in_the_benchmark_too() -> None:
    from specviz.evidence.benchmark import Cell
    from specviz.run.result import Result

    def run(slow: float) -> Result:
        rounds = [TimedRound(1, 1, 1, slow if i == 4 else 0.1, 0, 0, 0.0, 0.0) for i in range(10)]
        totals = Totals(
            tokens=10, rounds=10, phase_seconds={"verify": sum(r.verify for r in rounds)}, timed_rounds=rounds
        )
        return Result(token_ids=[1] * 10, totals=totals, finish_reason="length")

    cell = Cell()
    cell.add(run(9.0), run(0.1))
    assert cell.ratios == [pytest.approx(1.0)]
