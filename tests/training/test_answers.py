"""What a card shows of a target: whose prompts, and which answers turn in a circle."""
from __future__ import annotations

import json

import pytest

from specviz.training import answers
from specviz.training.job import Job


@pytest.mark.parametrize("ids, yes", [
    (list(range(200)), False),
    (list(range(12)) * 3, True),
    (list(range(12)) * 2, False),
    (list(range(12)) + [99] + list(range(12)) + [98] + list(range(12)), True),  # not one after the other
    ([5] * 14, True), ([5] * 13, False),  # overlapping ones count
    ([], False), ([1, 2], False),
])
def test_a_circle_is_twelve_tokens_three_times(ids, yes):
    assert answers.loops(ids) == yes


def test_questions_are_the_recipes_the_pages_and_those_of_the_data_folder(tmp_path):
    numbers = {"prompts": {"story": ["Tell me a story."]}}
    alone = answers.questions(Job(), numbers)
    assert alone[0] == answers.Question("story", "Tell me a story.", "Tell me a story.") and len(alone) > 4
    (tmp_path / "eval").mkdir()
    rows = [{"question_id": i, "category": kind, "turns": [f"Somebody else's words {i}", "More"]}
            for i, kind in enumerate(("writing", "math", "extraction"), 81)]
    (tmp_path / "eval" / "mt_bench.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = answers.questions(Job(data=tmp_path), numbers)[len(alone):]
    assert [(one.task, one.text) for one in more] == [("writing", rows[0]["turns"][0]), ("extraction", rows[2]["turns"][0])]
    assert not any("Somebody" in one.title for one in more), "the card names the question and does not repeat it"
