"""What the picker shows of a method: its measured speed from the benchmark's file, its drawing, what it needs."""
from __future__ import annotations

from specviz.core.needs import words_of
from specviz.ui.cards import cards
from specviz.ui.picker_rows import BENCH, measured, rows, shape, timed
from specviz.zoo.registry import register


def test_every_line_of_the_benchmark_is_read_and_names_a_method():
    told = measured()
    table = BENCH.read_text(encoding="utf-8").partition("\n## ")[0].splitlines()  # what follows are the winners
    lines = [line for line in table if line.startswith("| ") and not line.startswith("| method")]
    assert len(told["of"]) == len(lines) > 50 and told["of"]["Plain decoding"] == [1.0, 1.0]
    assert set(told["of"]) <= {card.title for card in cards().values()} and "cores" in told["where"]


def test_a_method_without_a_line_is_not_measured(tmp_path):
    bench = tmp_path / "bench.md"
    bench.write_text("# x\n\nTwo cores.\n\n| method | exactness | greedy: tokens a pass | speed-up |\n|---|---|---|---|\n| Draft tree | exact | 3.18 | 1.06 |\n")
    speeds = {row["key"]: row["speed"] for row in rows(cards(), (), bench)}
    assert speeds["draft_tree"] == [1.06, None] and speeds["speculative"] is None and measured(tmp_path / "none")["of"] == {}


def test_speeds_are_said_of_the_models_that_were_measured_and_of_no_others():
    model = measured()["model"]
    default, other = {"name": "", "model": model}, {"name": "other", "model": "other"}
    assert model in register().entries and timed([default, other], None)
    for models, targets in ((other["name"], [default, other]), ("|none", [default, other]), (None, [{"name": "", "model": "mine"}])):
        assert not timed(targets, models)


def test_drawings_follow_from_the_card():
    of = cards()
    drawn = {key: shape(of[key]) for key in ("autoregressive", "speculative", "draft_tree", "prompt_lookup", "jacobi", "swift", "dflash", "medusa")}
    assert list(drawn.values()) == ["one", "chain", "tree", "copy", "grid", "layers", "block", "tree"]
    assert words_of(of["speculative"].needs) == ["a small draft model"] and "a trained head" in words_of(of["medusa"].needs) and words_of(of["jacobi"].needs) == []


def test_rows_stand_by_family_with_the_founding_method_first():
    told = rows(cards(), ())
    assert told[0]["key"] == "speculative" and told[-1]["baseline"] and len(told) == len(cards())
    families = [row["family"] for row in told]
    assert sum(a != b for a, b in zip(families, families[1:])) == len(set(families)) - 1
