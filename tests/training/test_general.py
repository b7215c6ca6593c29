"""Figures on visitors' prompts: what is counted, and that the page and its picture show it."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from specviz.trace.metrics import Totals
from specviz.training import general
from specviz.training.job import Job, TrainingError

from ..message_codes import refuses

ROWS = [{"kind": kind, "prompt": f"{kind} {i}"} for kind in ("code", "chat") for i in range(3)]


def totals(tokens, rounds, by_position):
    return Totals(
        tokens=tokens,
        rounds=rounds,
        drafted=2 * rounds,
        by_position=by_position,
        by_place=[[rounds, tokens, 1, 1]],
    )


def test_prompts_come_from_the_data_folder_kinds_in_turns(tmp_path):
    (tmp_path / "eval").mkdir()
    path = tmp_path / "eval" / "some.jsonl"
    with refuses(TrainingError, "data.file"):
        general.prompts(Job(data=tmp_path), 4, path.name)
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    found = general.prompts(Job(data=tmp_path), 3, path.name)
    assert found == [("chat", "chat 0"), ("code", "code 0"), ("chat", "chat 1")]
    assert len(general.prompts(Job(data=tmp_path), 99, path.name)) == len(ROWS)
    path.write_text(json.dumps({"category": "writing", "turns": ["First.", "Then."]}), encoding="utf-8")
    assert general.prompts(Job(data=tmp_path), 3, path.name) == [("writing", "First.")]


def test_tokens_per_pass_are_of_all_passes_not_means_of_answers():
    runs = [("chat", totals(10, 10, [[10, 0]])), ("code", totals(30, 10, [[10, 9], [9, 9]]))]
    found = general.figures(runs)
    assert found["tokens_per_pass"] == 2.0 and found["nodes"] == 2.0
    assert found["by_kind"] == {"chat": 1.0, "code": 3.0}
    assert found["by_depth"] == [0.45, 1.0]
    assert found["by_place"] == {"0+": 2.0}
    low, high = found["interval"]
    assert 1.0 <= low <= 2.0 <= high <= 3.0 and low < high


def test_an_interval_of_equal_answers_is_a_point():
    assert general.interval([(4, 2)] * 5) == [2.0, 2.0]


@pytest.fixture
def measured():
    one = general.figures([("chat", totals(10, 10, [[10, 5]])), ("a < b", totals(30, 10, [[10, 9], [9, 9]]))])
    return {"target": "t", "prompts": 2, "new_tokens": 9, "methods": {"A & B": {"0": one, "0.7": one}}}


def test_the_page_shows_every_method_and_temperature(measured):
    text = "\n".join(general.section(measured, "mt_bench"))
    assert "| A & B | 2.0 | 2.00 (1.00 to 3.00) | 2.00 (1.00 to 3.00) |" in text
    assert "temperature 0 | temperature 0.7" in text and "(trained_mt_bench.svg)" in text


def test_the_picture_has_a_point_for_every_figure(measured):
    picture = ElementTree.fromstring(general.picture(measured["methods"]))
    name = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{name}circle")) == 2 + 2 + 1
    texts = [one.text for one in picture.findall(f"{name}text")]
    assert {"A & B", "a < b", "chat", "1", "2", "0+"} <= set(texts)


def test_many_methods_are_a_table_without_a_picture_best_first(measured):
    better = general.figures([("chat", totals(30, 10, [[10, 9]]))])
    others = {f"M{i}": measured["methods"]["A & B"] for i in range(len(general.COLOURS))}
    found = measured | {"methods": others | {"Best": {"0": better, "0.7": better}}}
    rows = [line for line in general.section(found, "families") if line.startswith("| ")]
    assert rows[1].startswith("| Best | 2.0 | 3.00") and len(rows) == 2 + len(others)
    assert not any("svg" in line for line in general.section(found, "families"))
