"""Prompts that a target writes itself: what is kept of them, that none occurs twice, and that they are
answered."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from specviz.training import self_written, text_answers
from specviz.training.corpus import Row
from specviz.training.job import TrainingError

from ..message_codes import refuses

END, NOISE = 0, 77


class Words:
    """A tokenizer of numbers: token n is the word "wn"; 0 ends a text."""

    eos_token_id = END

    def decode(self, ids, skip_special_tokens=False):
        return " ".join("\ufffd" if i == NOISE else f"w{i}" for i in ids)


class Generator:
    """Gives the same continuations, in turns, to every batch of prompts."""

    def __init__(self, texts, unlikely=frozenset()):
        self.tokenizer = Words()
        self.hparams = {"batch": 3}
        self.texts = list(texts)
        self.unlikely = unlikely
        self.asked = []

    def decode(self, rows):
        self.asked.append(rows)
        made = []
        for start, task, temperature in rows:
            ids = self.texts.pop(0) if self.texts else [9, 9, 9, END]
            top = torch.tensor([[-1 if i in self.unlikely else i] for i in ids])
            made.append(
                text_answers.Answer(
                    torch.tensor(list(start) + ids), len(start), task, temperature, top, torch.zeros_like(top)
                )
            )
        return made


@pytest.fixture
def writer(monkeypatch, tmp_path):
    monkeypatch.setattr(self_written, "user_turn", lambda tokenizer: [5, 6])
    return lambda *texts, **options: self_written.PromptWriter(Generator(texts, **options), tmp_path, 0.8)


def test_the_user_turn_is_what_all_prompts_begin_with(monkeypatch):
    monkeypatch.setattr(self_written.data, "chat_prompt", lambda tokenizer, text: [1, 2, 3, ord(text), 4])
    assert self_written.user_turn(None) == [1, 2, 3]
    monkeypatch.setattr(self_written.data, "chat_prompt", lambda tokenizer, text: [ord(text), 4])
    with refuses(TrainingError, "generate.template"):
        self_written.user_turn(None)


@pytest.mark.parametrize(
    "ids, kept",
    [
        ([1, 2, 3, 4, END], True),
        ([1, 2, 3, 4], False),  # the limit cut it
        ([1, 2, 3, END], False),  # a greeting
        ([1, 2, 3, 4, 5, 6] * 2 + [END], False),  # goes round in a circle
        ([1, 2, NOISE, 4, 5, END], False),  # half of a character
        ([], False),
    ],
)
def test_a_prompt_is_finished_long_enough_and_readable(writer, ids, kept):
    own = writer()
    answer = SimpleNamespace(
        ids=torch.tensor([5, 6] + ids), start=2, top_ids=torch.tensor([[i] for i in ids])
    )
    assert (own.text(answer) is not None) == kept


def test_a_prompt_of_unlikely_tokens_is_noise(writer):
    ids = list(range(1, 10)) + [END]
    assert writer(ids, unlikely={8}).prompts(1) == []
    assert writer(ids).prompts(1) == ["w1 w2 w3 w4 w5 w6 w7 w8 w9"]


def test_no_prompt_occurs_twice_not_even_in_a_later_run(writer, tmp_path):
    rows = [(Row("math", "x", f"given {i}", ""), 0.7) for i in range(4)]
    first = writer([1, 2, 3, 4, END], [1, 2, 3, 4, END], [2, 3, 4, 5, END])
    pairs = first.replace(3, rows, 0.5)
    assert [row.prompt for row, _ in pairs] == ["w1 w2 w3 w4", "w2 w3 w4 w5", "given 2", "given 3"]
    assert [(row.task, row.source) for row, _ in pairs[:2]] == [("chat", "self-written")] * 2 and [
        t for _, t in pairs
    ] == [0.7] * 4
    assert json.loads((tmp_path / "prompts-00003.json").read_text())["prompts"] == [
        "w1 w2 w3 w4",
        "w2 w3 w4 w5",
    ]
    assert all(row[0] == [5, 6] and row[2] == 0.8 for batch in first.generator.asked for row in batch)
    assert writer([1, 2, 3, 4, END], [4, 3, 2, 1, END]).prompts(2) == ["w4 w3 w2 w1"], (
        "kept of the run before"
    )


def test_shards_take_their_prompts_from_the_writer(monkeypatch, tmp_path):
    """A share of nothing leaves the prompts of the data alone; a whole one replaces all."""
    seen = []
    monkeypatch.setattr(
        text_answers.AnswerGenerator,
        "answers",
        lambda self, pairs: seen.append([row.prompt for row, _ in pairs]) or [],
    )
    monkeypatch.setattr(text_answers, "write_tensors", lambda path, tensors: None)
    monkeypatch.setattr(text_answers, "pack", lambda answers: {})
    writer = SimpleNamespace(
        replace=lambda shard, pairs, share: [
            (Row("chat", "", f"own {shard} {share}", ""), t) for _, t in pairs
        ]
    )
    pairs = [(Row("math", "", f"given {i}", ""), 0.0) for i in range(3)]
    make = text_answers.AnswerGenerator(
        None,
        Words(),
        {"shard_rows": 2, "self_written": 1.0},
        SimpleNamespace(quiet=True, seed=0),
        lambda row: ([], 0),
    )
    make.shards(tmp_path, pairs, None)
    make.shards(tmp_path, pairs, None, writer)
    assert seen == [["given 0", "given 1"], ["given 2"], ["own 0 1.0"] * 2, ["own 1 1.0"]]
