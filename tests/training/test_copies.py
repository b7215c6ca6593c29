"""Rows that teach copying."""
from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.training.copies import Copies
from specviz.training.draft import Again
from specviz.training.generate import Answer

NUMBERS = {"copy_share": 0.3, "copy_evenly": 0.2, "copy_length": 32, "batch_tokens": 128}


def answer(start: int) -> Answer:
    return Answer(torch.arange(start, start + 40), 10, "story", True, torch.zeros(30, 1), torch.zeros(30, 1))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(12, 90), st.sampled_from([0.0, 0.4, 1.0]))
def test_what_counts_was_said_before_after_the_same_token(seed, length, evenly):
    """With tokens that are all different inside a text, the token before says which one comes."""
    copies = Copies(lambda dice, size: random.Random(5).sample(range(1000, 9000), size + 200), 8192, evenly)
    row, counts = copies.row(random.Random(seed), length)
    assert len(row) == len(counts) >= length
    pairs = list(zip(row, row[1:]))
    assert all(pairs[i - 1] in pairs[:i - 1] for i, counted in enumerate(counts) if counted)
    assert evenly < 1 or max(row) < 8192


def test_copies_of_answers_are_a_function_of_seed_and_step():
    one, two = (Again([answer(100), answer(300)], NUMBERS, 0, "cpu") for _ in range(2))
    two[3]
    for a, b in zip(one[7], two[7]):
        assert torch.equal(a, b)
    ids, where, labels = one[7]
    assert ids.shape == (4, 32) and len(labels) and torch.equal(ids.flatten()[where + 1], labels)
    assert [one.due(step) for step in range(50)] == [two.due(step) for step in range(50)]
    assert 0.2 < sum(one.due(step) for step in range(2000)) / 2000 < 0.4
    assert not any(Again([answer(100)], NUMBERS | {"copy_share": 0.0}, 0, "cpu").due(step) for step in range(50))


class Echo:
    """A model that knows where it is asked and nothing else: its state is the one-hot of the token to come, if it copies."""

    def __init__(self, copies: bool):
        self.copies, self.lm_head = copies, torch.nn.Linear(400, 400, bias=False)
        self.lm_head.weight.data = torch.eye(400)

    def model(self, ids):
        following = ids.roll(-1, 1) if self.copies else ids
        return type("Out", (), {"last_hidden_state": torch.nn.functional.one_hot(following, 400).float()})


@pytest.mark.parametrize("copies, right", [(True, 1.0), (False, 0.0)])
def test_the_share_that_is_copied_right_is_measured(copies, right):
    rows = Again([answer(100), answer(300)], NUMBERS | {"copy_evenly": 0.0}, 0, "cpu")
    assert rows.right(Echo(copies)) == right
