"""What a card shows of a target: whose prompts, and which answers turn in a circle."""

from __future__ import annotations

import json

import pytest

from specviz.training import answers
from specviz.training.data import Row
from specviz.training.job import Job


@pytest.mark.parametrize(
    "ids, yes",
    [
        (list(range(200)), False),
        (list(range(12)) * 3, True),
        (list(range(12)) * 2, False),
        (list(range(12)) + [99] + list(range(12)) + [98] + list(range(12)), True),  # not one after the other
        ([5] * 14, True),
        ([5] * 13, False),  # overlapping ones count
        ([], False),
        ([1, 2], False),
    ],
)
def test_a_circle_is_twelve_tokens_three_times(ids, yes):
    assert answers.loops(ids) == yes


def test_questions_are_the_recipes_the_pages_and_those_of_the_data_folder(tmp_path):
    hparams = {"prompts": {"story": ["Tell me a story."]}}
    alone = answers.questions(Job(), hparams)
    assert alone[0] == answers.Question("story", "Tell me a story.", "Tell me a story.") and len(alone) > 4
    (tmp_path / "eval").mkdir()
    rows = [
        {"question_id": i, "category": kind, "turns": [f"Somebody else's words {i}", "More"]}
        for i, kind in enumerate(("writing", "math", "extraction"), 81)
    ]
    (tmp_path / "eval" / "mt_bench.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = answers.questions(Job(data=tmp_path), hparams)[len(alone) :]
    assert [(one.task, one.text) for one in more] == [
        ("writing", rows[0]["turns"][0]),
        ("extraction", rows[2]["turns"][0]),
    ]
    assert not any("Somebody" in one.title for one in more), (
        "the card names the question and does not repeat it"
    )


def test_the_share_of_circles_is_that_of_as_many_prompts_a_task(monkeypatch):
    rows = [Row(task, "ours", f"{task} {i}", "") for task in ("story", "math") for i in range(5)]
    circle, line = [1, 2] * 20, list(range(40))

    def written(job, model, words, texts, tokens):
        assert [text for _, text in texts] == ["story 0", "story 1", "math 0", "math 1"] and tokens == 9
        return [circle, line, line, line]

    monkeypatch.setattr(answers, "greedy_answers", written)
    assert answers.looping_share(Job(), None, None, rows, {"looping_prompts": 2, "looping_tokens": 9}) == 0.25
