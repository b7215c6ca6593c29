"""SpecReason and reward-guided decoding: steps that are kept or refused as a whole."""

from __future__ import annotations

import math

import pytest
import torch

from specviz.core import DraftTree, Sampling, Scores, State
from specviz.trace.events import Decided
from specviz.verifiers.step_grade import StepGrade

from ..exactness.toys import PROMPT, greedy, toy
from .toys import Tables, commits, decode, notes, probs, with_pieces


def counting(vocab, sure, **other):
    """After t comes t+1, with this probability; ``other``: after these tokens another distribution."""

    def of(tokens):
        return other.get(f"t{tokens[-1]}", probs(vocab, **{f"t{(tokens[-1] + 1) % vocab}": sure}))

    return of


def test_a_step_that_passes_is_kept_whole_and_without_a_bonus():
    kit = Tables(counting(5, 0.9), counting(5, 0.9), 5)
    state, events = decode("specreason", kit, [4], 12)
    assert [(c.kind, c.tokens) for c in commits(events)][:3] == [
        ("accepted", (0,)),
        ("accepted", (1, 2, 3, 4, 0)),
        ("accepted", (1, 2, 3, 4, 0)),
    ]
    assert {note["writer"] for note in notes(events, "step")[:3]} == {"small"}
    assert [note["grade"] for note in notes(events, "grade")][:3] == [
        pytest.approx(8.1)
    ] * 3 and state.left == 0


def test_a_step_that_is_refused_is_written_anew_up_to_its_end_whatever_its_first_tokens_were():
    """The small model leaves the target's path at the third token of a step; the first two are not kept
    either."""
    small = counting(6, 0.9, t2=probs(6, t0=0.9))
    kit = Tables(counting(6, 0.9, t2=probs(6, t3=0.98, t0=1e-6)), small, 6)
    state, events = decode("specreason", kit, [5], 13)
    assert state.tokens == [5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0]
    assert [c.kind for c in commits(events)] == [
        "accepted",
        "correction",
        *["plain"] * 5,
        "correction",
        *["plain"] * 5,
    ]
    assert [note["step"] for note in notes(events, "step")] == [0, *[1] * 6, *[2] * 6]
    first = next(e for e in events if isinstance(e, Decided) and e.round == 1).decisions
    assert [t["verdict"] for t in first] == ["rejected", "skipped", "skipped"] and first[0]["a"] == 0.0


def test_the_grade_is_nine_times_the_geometric_mean():
    rows = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]).log()
    for least, kind in ((9 * math.sqrt(0.24) - 0.01, "accepted"), (9 * math.sqrt(0.24) + 0.01, "correction")):
        state = State([0], Sampling())
        verdict = StepGrade(least).verify(DraftTree.chain([1, 1]), Scores(rows), state)
        assert verdict.kind == kind and (verdict.path, verdict.token) == (
            ((0,), 1) if kind == "accepted" else ((), 0)
        )
        assert dict(state.notes)["grade"] == {
            "grade": pytest.approx(9 * math.sqrt(0.24), abs=1e-3),
            "least": least,
            "passed": kind == "accepted",
            "length": 2,
        }
    assert "drift" not in dict(state.notes)


@pytest.mark.parametrize("key, highest", [("specreason", 9.0), ("reward_guided", 1.0)])
def test_with_no_least_grade_it_is_the_small_models_text_and_with_the_highest_the_targets(key, highest):
    kit = with_pieces(toy(12, share=0.6, sharp=2.0))
    loose, _ = decode(key, kit, PROMPT, 30, knobs={"least": 0.0})
    strict, events = decode(
        key, with_pieces(toy(12, share=0.6, sharp=2.0)), PROMPT, 30, knobs={"least": highest}
    )
    assert strict.tokens == greedy(kit.net.logits, PROMPT, 30) and not [
        c for c in commits(events) if c.kind == "accepted"
    ]
    assert (
        loose.tokens[:-1] == greedy(kit.small.logits, PROMPT, 29) != strict.tokens[:-1]
    )  # the last place is the target's


def test_the_target_may_write_the_first_steps_by_itself_and_no_step_is_longer_than_allowed():
    kit = Tables(counting(9, 0.9), counting(9, 0.9), 9)
    _, events = decode("specreason", kit, [8], 30, knobs={"first": 2, "longest": 3})
    reported = notes(events, "step")
    assert [note["writer"] for note in reported if note["step"] < 2] == ["large"] * 4, "one token, then three"
    assert {len(note["tokens"]) for note in reported[:-2] if note["writer"] == "small"} == {3}
    assert all(
        sum(len(n["tokens"]) for n in reported if n["step"] == s) <= 3 for s in {n["step"] for n in reported}
    )


def test_lines_may_be_steps():
    kit = Tables(counting(4, 0.9), counting(4, 0.9), 4)
    kit.piece = lambda token: {0: b".", 2: b"!\n"}.get(token, b"x")
    _, events = decode("specreason", kit, [3], 9, knobs={"step": "line"})
    assert [c.tokens for c in commits(events)][:2] == [(0, 1, 2), (3, 0, 1, 2)]


def test_a_paragraph_ends_with_an_empty_line_whatever_tokens_say_so():
    """Two line breaks in two tokens, or in one; and a line break that ended the step before does not
    count."""
    kit = Tables(counting(6, 0.95), counting(6, 0.95), 6)
    kit.piece = lambda token: {0: b"\n", 1: b"\n", 3: b".\n\n", 4: b"\n"}.get(token, b"x")
    _, events = decode("specreason", kit, [5], 12, knobs={"step": "paragraph", "longest": 512, "least": 5.0})
    assert [c.tokens for c in commits(events)][:4] == [(0, 1), (2, 3), (4, 5, 0, 1), (2, 3)]
