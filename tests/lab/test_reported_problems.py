"""Lab pages for what users of engines report: acceptance killers, a grammar after a thought, rows in a batch."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Context
from specviz.coursework import acceptance_killers as wiring
from specviz.lab import answer
from specviz.lab import batch_effects as batched
from specviz.lab import late_grammar as late
from specviz.run.request import SessionError
from specviz.run.structured import Grammar
from specviz.zoo import load


@pytest.fixture(scope="module")
def small():
    return load("Llama-specviz-16M", None, "cpu", deterministic=True)


def last(name, payload, loaded=None):
    return [part for part in answer(name, payload, loaded) if not isinstance(part, str)][-1]


@pytest.mark.thorough
def test_a_killer_costs_acceptance_and_not_the_text():
    found = last("acceptance_killers", {"mistakes": ["shift_by_one"]})
    right, wrong = found["runs"]
    assert right["equal"] and wrong["equal"] and right["text"] == wrong["text"]
    assert wrong["tokens_per_pass"] < 0.75 * right["tokens_per_pass"]
    for run in (right, wrong):
        tokens = sum(run["accepted"]) + len(run["accepted"])
        assert tokens / len(run["accepted"]) == pytest.approx(run["tokens_per_pass"], abs=0.1)
    assert {one["key"] for one in found["mistakes"]} == set(wiring.CHANGES)


@pytest.mark.parametrize(
    "mistakes, code",
    [
        (["no_such"], "lab.killers"),
        ("shift_by_one", "lab.killers"),
        ([{}], "lab.killers"),
        (["wrong_layer", "unit_length"], "lab.killers_pair"),
    ],
)
def test_switches_are_checked(mistakes, code):
    with pytest.raises(SessionError) as error:
        last("acceptance_killers", {"mistakes": mistakes})
    assert error.value.code == code


@pytest.mark.thorough
def test_eight_bits_do_not_change_in_company_and_floats_do(small):
    found = last("batch_effects", {"steps": 8}, small)
    rows = {row["numbers"]: row for row in found["rows"]}
    assert set(rows) == {"float32", "bfloat16", "int8"}
    for way in batched.WAYS:
        assert rows["int8"][way]["changed"] == rows["int8"][way]["flips"] == 0
        assert 0 <= rows["float32"][way]["largest"] < 1e-3
        assert all(row[way]["flips"] <= row[way]["changed"] <= row["positions"] for row in rows.values())
    assert rows["bfloat16"]["draft"]["changed"] + rows["float32"]["draft"]["changed"] > 0


def test_a_flip_is_counted_with_its_tokens(small):
    alone = torch.zeros(2, 3, small.vocab)
    alone[..., 5] = 1.0
    other = alone.clone()
    other[1, 2, 7] = 2.0
    found = batched._compared(small, alone, other)
    assert (found["changed"], found["flips"], found["largest"]) == (1, 1, 2.0)
    assert found["example"]["alone"][0] > found["example"]["alone"][1]
    assert found["example"]["batched"][0] < found["example"]["batched"][1]


@pytest.fixture(scope="module")
def grammar(small):
    pytest.importorskip("llguidance")
    return Grammar(
        {"type": "choice", "choice": ["yes", "no"]}, small.tokenizer, small.vocab, sorted(small.end_tokens)
    )


def test_a_late_mask_begins_inside_a_draft(small, grammar):
    stop = next(t for t in range(small.vocab) if small.token_bytes(t).strip() == b".")
    word = next(t for t in range(small.vocab) if small.token_bytes(t).strip() == b"the")
    paths = [(), (word,), (word, stop), (word, stop, word)]
    for side, masked in (("row", [False, False, True, False]), ("round", [False] * 4)):
        mask = late.LateMask(grammar, small.token_bytes, side)
        logits = mask(torch.zeros(4, small.vocab), Context((1,), (word,), paths, decides=True))
        assert [bool((row == -torch.inf).any()) for row in logits] == masked
        committed = mask(torch.zeros(1, small.vocab), Context((1,), (word, stop), [()], decides=True))
        assert bool((committed == -torch.inf).any())


def test_answers_keep_to_the_grammar_where_the_mask_begins_with_the_token(small):
    pytest.importorskip("llguidance")
    found = last("late_grammar", {"runs": 2}, small)
    rows = {row["side"]: row for row in found["rows"]}
    assert set(rows) == set(late.SIDES) and all(row["runs"] == 2 for row in rows.values())
    assert all(rows[side]["valid"] == rows[side]["answered"] for side in ("row", "start"))
    assert rows["start"]["thought"] == 0
