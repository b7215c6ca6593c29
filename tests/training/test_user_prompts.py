"""Prompts of visitors: those that overlap an evaluation set are left out, kinds come equally often."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections import Counter

import pytest

from specviz.training import text_answers, user_prompts
from specviz.training.data import DataError

from ..message_codes import refuses

LONG = "Please explain to my little sister why the sky is blue at noon"
ROWS = [
    {"prompt": "What is rust?", "kind": "question", "source": "a"},
    {"prompt": "Write a loop in Rust.", "kind": "code", "source": "a", "then": "Now in Go."},
    {"prompt": "what's  RUST", "kind": "question", "source": "b"},
    {"prompt": f"Hello! {LONG}, and red at dusk.", "kind": "explain", "source": "b"},
    {"prompt": "Add 2 and 3.", "kind": "math/reasoning", "source": "b"},
]


def write(folder, rows, evaluation=()):
    with gzip.open(folder / user_prompts.FILE, "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "eval").mkdir()
    for name, texts in evaluation:
        text = "".join(json.dumps(row) + "\n" for row in texts)
        (folder / "eval" / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def test_overlap_with_an_evaluation_set_is_left_out(tmp_path):
    evaluation = [
        ("general", [{"prompt": "what is Rust", "kind": "question"}]),
        ("mt_bench", [{"turns": ["Who are you?", LONG.upper()]}]),
    ]
    found = user_prompts.load(write(tmp_path, ROWS, evaluation))
    assert [one.prompt for one in found] == ["Write a loop in Rust.", "what's  RUST", "Add 2 and 3."]
    assert [one.task for one in found] == ["code", "chat", "math"]
    assert [one.then for one in found] == ["Now in Go.", "", ""]


def test_without_the_file_there_are_none(tmp_path):
    assert user_prompts.load(None) == user_prompts.load(tmp_path) == []


@pytest.mark.parametrize("text", ["{", '{"kind": "code"}\n', "3\n"])
def test_a_damaged_file_is_refused(tmp_path, text):
    with gzip.open(tmp_path / user_prompts.FILE, "wt", encoding="utf-8") as file:
        file.write(text)
    with refuses(DataError, "data.damaged"):
        user_prompts.load(tmp_path)


def test_kinds_come_equally_often_and_a_prompt_once():
    rows = [user_prompts.Prompt("chat", "", str(i), "", "common" if i % 10 else "rare") for i in range(300)]
    order = list(user_prompts.by_kind(rows, 0))
    assert sorted(one.prompt for one in order) == sorted(one.prompt for one in rows)
    assert 10 <= Counter(one.kind for one in order[:40])["rare"] <= 30
    assert order == list(user_prompts.by_kind(rows, 0)) != list(user_prompts.by_kind(rows, 1))


def test_a_mix_takes_its_share_of_each_stream_while_the_first_lasts():
    mixed = text_answers.mix(iter("a" * 60), itertools.repeat("b"), 0.75, random.Random(0))
    found = "".join(itertools.islice(mixed, 200))
    assert found.count("a") == 60
    assert 6 <= found[: found.rindex("a")].count("b") <= 40
