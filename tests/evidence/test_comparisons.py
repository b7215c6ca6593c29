"""The comparisons of methods that share one idea: cells, counts, and what the page makes of them."""

from __future__ import annotations

import json

import pytest

from specviz.evidence import comparisons
from specviz.evidence.claims import Runs
from specviz.methods import catalogue
from specviz.zoo import load


def row(cell, number=0, **counts):
    base = {"tokens": 60, "rows": 90, "passes": 30, "steps": 80, "tried": 40, "accepted": 30}
    return base | counts | {"cell": cell.name, "number": number, "target": "t"}


def test_cells_are_distinct_and_their_knobs_are_the_methods_own():
    cells = comparisons.cells()
    assert len({cell.name for cell in cells}) == len(cells) and {c.kind for c in cells} == set(
        comparisons.KINDS
    )
    for cell in cells:
        catalogue()[cell.method].read_knobs(cell.knobs)


def test_the_page_divides_sums_and_leaves_out_what_was_not_run():
    some = {cell.kind: cell for cell in comparisons.cells()}
    plain = next(cell for cell in comparisons.cells() if cell.requests == 4)
    rows = [row(plain), row(plain, 1, tokens=30, rows=90), *(row(some["chains"], n) for n in range(4))]
    lines = comparisons.page(rows).splitlines()
    assert "| plain decoding |  |  | 2.00 |  |  |" in lines  # 180 tokens of passes for 90 tokens
    assert "| plain decoding |  |  | 1.50 |  |  |" in lines  # 90 tokens in 60 passes
    assert f"| {some['chains'].label} |  |  | 2.00 (1.5) |" in lines  # 90 tokens of passes for 60


def test_clocked_ratios_pair_the_same_batches():
    """Speeds of 2 and 8 times plain decoding's: geometrically 4, however long each batch was."""
    cells = [cell for cell in comparisons.cells() if cell.kind == "clocked" and cell.requests == 2]
    plain, other = cells[:2]
    said = {"threads": 2, "on": "a machine"}
    rows = [row(plain, n, micros=100 * (n + 1), **said) for n in (0, 1)]
    rows += [
        row(other, 0, micros=50, **said),
        row(other, 1, micros=25, **said),
        row(other, 2, micros=1, **said),
    ]
    text = comparisons.page(rows)
    found = [line for line in text.splitlines() if "(" in line and line.startswith(f"| {other.label} |")]
    assert len(found) == 1 and found[0].split("|")[3].split()[0] == "4.00"
    assert "on a machine, 2 threads" in text and "Batches behind each figure: 0 to 3" in text
    assert "By the clock" not in comparisons.page(rows[:0])


def test_a_clocked_batch_has_its_time_threads_and_processor(runs, monkeypatch):
    cells = [c for c in comparisons.cells() if c.kind == "clocked" and c.method == "cost_ratio"]
    clock, ran = comparisons.Clocked(), []
    real = comparisons.Session
    monkeypatch.setattr(comparisons, "Session", lambda *args, **kw: ran.append(args[1]) or real(*args, **kw))
    found = [clock.figures(runs, cell, 0) for cell in cells[:2]]
    assert ran == ["cost_ratio"] * 4  # each size once before it counts
    for one in found:
        assert one["micros"] > 0 and one["threads"] >= 1 and "core" in one["on"]
    assert found[1]["tokens"] > found[1]["passes"]
    clock.figures(runs, cells[2], 0)
    assert len(ran) == 5


def test_the_oracles_measured_rate_has_an_interval():
    cell = next(cell for cell in comparisons.cells() if cell.label == "acceptance 0.7")
    rows = [row(cell, n, tried=100, accepted=70 + (-1) ** n) for n in range(8)]
    line = next(line for line in comparisons.page(rows).splitlines() if line.startswith("| acceptance 0.7"))
    assert "| 0.700 | +0.0% | 800 | 0.691 to 0.709 |" in line
    assert "| acceptance" not in comparisons.page(rows[:1])


@pytest.fixture(scope="module")
def runs():
    return Runs(load("Llama-specviz-16M"))


def test_a_batch_is_counted_whole(runs):
    kind = "verification"
    cells = [
        c for c in comparisons.cells() if (c.method, c.kind) == ("autoregressive", kind) and c.requests < 3
    ]
    alone, two = (comparisons.figures(runs, cell, 0) for cell in cells)
    assert alone["tokens"] == alone["rows"] == alone["passes"] and alone["steps"] == 0
    assert two["tokens"] > two["passes"] and two["rows"] == two["tokens"]


def test_finished_runs_are_not_run_again(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(
        comparisons, "figures", lambda runs, cell, number: ran.append(cell.name) or {"tokens": 1}
    )
    ledger = tmp_path / "rows.jsonl"
    for _ in range(2):
        comparisons.run(lambda name: None, "t", ledger, ["chains"], 1.0)
    cells = [cell for cell in comparisons.cells() if cell.kind == "chains"]
    assert len(ran) == sum(cell.count for cell in cells) == len(ledger.read_text().splitlines())
    assert {json.loads(line)["target"] for line in ledger.read_text().splitlines()} == {"t"}
