"""A lane that decodes several prompts at once tells its own prompt's run, and a note of how far everybody
is."""

from __future__ import annotations

import pytest

from specviz import lab
from specviz.core import Sampling
from specviz.run import SessionError, race
from specviz.run.result import collect
from specviz.run.session import Session
from specviz.trace.events import Noted

from ..message_codes import refuses
from .fakes import FakeLoaded

OTHERS = ("the sea is", "write a story", "and the cat")


@pytest.mark.parametrize(
    "method, temperature",
    [
        ("autoregressive", 0.0),
        ("autoregressive", 1.0),
        ("speculative", 0.0),
        ("speculative", 1.0),
        ("tetris", 0.0),
    ],
)  # above 0 its drafts are as long as the others leave room for: test_batched_law
def test_a_lane_writes_the_same_in_company(method, temperature):
    loaded, probs = FakeLoaded(), Sampling(temperature, seed=3)
    alone = collect(Session(loaded, method, None, probs).run("the cat sat", 12))
    events = [*Session(loaded, method, None, probs, batch_prompts=OTHERS).run("the cat sat", 12)]
    assert collect(iter(events)).token_ids == alone.token_ids
    notes = [event.data for event in events if isinstance(event, Noted) and event.kind == "class"]
    assert [n["written"][0] for n in notes][-1] == 12 and all(
        len(n["written"]) == len(n["rows"]) == 4 for n in notes
    )
    assert notes[0]["prompts"] == ["the cat sat", *OTHERS] and all(n["rows"][0] > 0 for n in notes)
    assert [n["seconds"] for n in notes] == sorted(n["seconds"] for n in notes)
    assert all((row == 0) == was for a, b in zip(notes, notes[1:]) for row, was in zip(b["rows"], a["done"]))
    others = [
        collect(Session(loaded, method, None, Sampling(temperature, seed=4 + i)).run(text, 12)).token_ids
        for i, text in enumerate(OTHERS)
    ]
    assert all(n <= len(tokens) for n, tokens in zip(notes[-1]["written"][1:], others))


def test_every_cache_is_given_back_and_forwards_are_counted():
    loaded = FakeLoaded()
    result = collect(Session(loaded, "speculative", batch_prompts=OTHERS).run("the cat sat", 8))
    assert result.forward_seconds > 0 and len(loaded.kits) > 4
    assert all(model.cached_tokens == [] for kit in loaded.kits for model in kit.opened)


def test_what_cannot_share_a_pass_takes_one_prompt_at_a_time():
    with refuses(SessionError, "method.one_prompt", "PEARL"):
        Session(FakeLoaded(), "pearl", batch_prompts=OTHERS)


def test_a_race_of_classes_ends_with_its_first_prompt():
    events = list(
        race(
            [Session(FakeLoaded(), key, batch_prompts=OTHERS) for key in ("speculative", "autoregressive")],
            "the cat sat",
            6,
        )
    )
    assert {lane for lane, event in events if isinstance(event, Noted) and event.kind == "class"} == {0, 1}


def test_a_class_takes_a_prompt_of_each_task_in_turn():
    assert (
        len(set(lab.sample_prompts(7))) == 7
        and lab.sample_prompts(0) == []
        and lab.sample_prompts(3) == lab.sample_prompts(7)[:3]
    )
