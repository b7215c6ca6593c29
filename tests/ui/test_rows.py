"""Rows of the picker: a method's measured speed from the benchmark's file, its drawing, its needs in
words."""

from __future__ import annotations

import json

import pytest

from specviz import ROOT
from specviz.core.needs import needs_in_words
from specviz.engine.cards import cards
from specviz.ui.picker_rows import drawing_name, measured_speedups, rows, speeds_apply
from specviz.zoo.registry import register


def test_the_speeds_are_those_that_the_benchmark_wrote():
    """One command writes the table of docs/bench.md and the file that the page reads: they hold the same
    methods and medians."""
    found = measured_speedups()
    table = [
        line.split(" | ")
        for line in (ROOT / "docs" / "bench.md").read_text().split("\n## ")[0].splitlines()
        if line.startswith("| ") and not line.startswith("| method")
    ]
    shown = {cells[0].removeprefix("| ").strip(): cells[3].split()[0] for cells in table}
    titles = {card.title: key for key, card in cards().items()}
    assert (
        len(shown) == len(found["speedups"]) > 50
        and found["speedups"]["autoregressive"] == [1.0, 1.0]
        and found["where"]
    )
    for title, median in shown.items():
        assert float(median) == pytest.approx(found["speedups"][titles[title]][0], rel=0.006), title


def test_a_method_without_an_entry_is_not_measured(tmp_path):
    bench = tmp_path / "bench.json"
    bench.write_text(
        json.dumps(
            {
                "schema": "specviz-bench/1",
                "where": "Two cores.",
                "target": "x",
                "draft": "y",
                "memory": {"draft_tree": [4_000_000, 20]},
                "speedups": {"draft_tree": {"0": 1.06}, "swift": {"1": 2.0}},
            }
        )
    )
    speeds = {row["key"]: row["speed"] for row in rows(cards(), (), bench)}
    memory = {row["key"]: row["memory"] for row in rows(cards(), (), bench)}
    assert memory["draft_tree"] == [4_000_000, 20] and memory["speculative"] is None
    assert speeds["draft_tree"] == [1.06, None] and speeds["speculative"] is speeds["swift"] is None
    for spoiled in ("", "[]", '{"schema": "other", "speedups": {"a": {"0": 1}}}', '{"speedups": 3}'):
        bench.write_text(spoiled)
        measured_speedups.cache_clear()
        assert measured_speedups(bench)["speedups"] == {}
    assert measured_speedups(tmp_path / "none")["speedups"] == {}


def test_speeds_are_said_of_the_models_that_were_measured_and_of_no_others():
    model = measured_speedups()["model"]
    default, other = {"name": "", "model": model}, {"name": "other", "model": "other"}
    assert model in register().entries and speeds_apply([default, other], None)
    for models, targets in (
        (other["name"], [default, other]),
        ("|none", [default, other]),
        (None, [{"name": "", "model": "mine"}]),
    ):
        assert not speeds_apply(targets, models)


def test_drawings_follow_from_the_card():
    of = cards()
    drawn = {
        key: drawing_name(of[key])
        for key in (
            "autoregressive",
            "speculative",
            "draft_tree",
            "prompt_lookup",
            "jacobi",
            "swift",
            "dflash",
            "medusa",
        )
    }
    assert list(drawn.values()) == ["one", "chain", "tree", "copy", "grid", "layers", "block", "tree"]
    assert (
        needs_in_words(of["speculative"].needs) == ["a small draft model"]
        and "a trained head" in needs_in_words(of["medusa"].needs)
        and needs_in_words(of["jacobi"].needs) == []
    )


def test_rows_stand_by_family_with_the_founding_method_first():
    told = rows(cards(), ())
    assert told[0]["key"] == "speculative" and told[-1]["baseline"] and len(told) == len(cards())
    families = [row["family"] for row in told]
    assert sum(a != b for a, b in zip(families, families[1:])) == len(set(families)) - 1
