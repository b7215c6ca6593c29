"""Answers that go in circles are found, counted, and left out of the second set of figures."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specviz.evidence.bench_ledger import Run
from specviz.evidence.benchmark import Cell, add_share_of_oracle, rows
from specviz.evidence.looping import GRAM, loops
from specviz.trace.metrics import Totals


def result(tokens, seconds):
    totals = Totals(tokens=len(tokens), rounds=len(tokens) // 2, phase_seconds={"verify": seconds})
    return SimpleNamespace(totals=totals, token_ids=tokens, forward_seconds=0.0, memory={})


STRAIGHT, CIRCLES = list(range(48)), list(range(GRAM)) * 4


@pytest.mark.parametrize(
    "tokens, found",
    [
        (CIRCLES, True),
        (STRAIGHT, False),
        ([], False),
        (list(range(GRAM)) * 2, False),
        ([7] * (GRAM + 2), True),
        ([7] * (GRAM + 1), False),
        ([*range(GRAM), 99, *range(GRAM), 98, *range(GRAM)], True),
    ],
)
def test_a_twelve_gram_three_times_is_a_loop(tokens, found):
    assert loops(tokens) is found


def test_a_row_has_the_share_of_looping_answers_and_figures_without_them():
    cell = Cell()
    cell.add(result(STRAIGHT, 2.0), result(STRAIGHT, 4.0))
    cell.add(result(CIRCLES, 1.0), result(CIRCLES, 8.0))
    row = cell.row(True)
    assert (
        row["looping_share"] == 0.5
        and row["walltime_speedup"] == 5.0
        and row["walltime_speedup_without_loops"] == 2.0
    )
    assert row["block_efficiency_without_loops"] == 2.0
    alone = Cell()
    alone.add(result(CIRCLES, 1.0), result(CIRCLES, 8.0))
    assert (
        alone.row(True)["walltime_speedup_without_loops"] is None and alone.row(True)["looping_share"] == 1.0
    )
    mean = rows({("m", "a"): cell, ("m", "b"): alone}, True)[-1]
    assert mean["looping_share"] == 0.75 and mean["walltime_speedup_without_loops"] == 2.0


def test_old_ledger_lines_have_no_loops():
    row = {
        "method": "m",
        **dict.fromkeys(("tokens", "rounds", "drafted", "accepted", "tried"), 1),
        "same": None,
        "failed": "",
        **dict.fromkeys(("seconds", "prefill_seconds", "forward_seconds"), 1.0),
    }
    assert Run.read(row).loops is None and Run.read(row | {"loops": True}).loops is True


def test_the_oracle_bounds_each_task():
    table = [
        {"method": m, "task": "t", "walltime_speedup": s}
        for m, s in (("plain", 1.0), ("a", 1.5), ("oracle", 3.0))
    ]
    table.append({"method": "a", "task": "u", "walltime_speedup": 2.0})
    add_share_of_oracle(table, {"oracle"})
    assert [row["of_possible"] for row in table] == [1 / 3, 0.5, 1.0, None]


def test_the_page_has_a_section_without_looping_answers():
    from specviz.evidence.bench_page import MethodRow, looping_sections
    from specviz.methods import catalogue

    row, plain = MethodRow(), Run("autoregressive", 40, 40, seconds=4.0)
    row.add("t", Run("speculative", 40, 20, seconds=2.0, loops=False), plain)
    row.add("t", Run("speculative", 40, 4, seconds=0.5, loops=True), plain)
    section = looping_sections({0.0: {"speculative": row}}, catalogue())
    assert (
        len(section) == 3
        and "50.0%" in section[-1]
        and "| 2 |" in section[-1]
        and "2 (2 to 2)" in section[-1]
    )
    old = MethodRow()
    old.add("t", Run("speculative", 40, 20, seconds=2.0), plain)
    assert looping_sections({0.0: {"speculative": old}}, catalogue()) == []
