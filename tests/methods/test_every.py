"""Every method of the catalogue, by its key: it says what it is, asks for what its parts ask for, and plays.

``pytest tests/methods -k KEY`` is what to run while a method is written; what it promises is tested in
tests/exactness.
"""

from __future__ import annotations

import pytest

from specviz import ROOT
from specviz.core import Sampling
from specviz.evidence.fidelity import page
from specviz.methods import catalogue

from ..exactness.toys import begin, player, provided, small_knobs, toy_of

EVERY = [pytest.param(method, id=key) for key, method in catalogue().items()]
OWN_KIT = {
    "rapid",
    "parallel_branches",
    "specreason",
    "reward_guided",  # they read text, or the target's weights a second time: tests of
    "collaborative_decoding",
}  # their drafters; scales: tests/loops/test_next_scale.py
CAPABILITIES = [pytest.param(method, id=key) for key, method in catalogue().items() if key not in OWN_KIT]


@pytest.mark.parametrize("method", EVERY)
def test_it_says_what_it_is(method):
    assert method.title and method.family
    for name, words in (("summary", 8), ("look", 6), ("wins", 5), ("loses", 5), ("differs", 2)):
        text = getattr(method, name)
        assert text.endswith(".") and len(text.split()) >= words, f"{name}: write a sentence, not {text!r}"
    assert all(knob.help and knob.read(None) == knob.default for knob in method.knobs)
    assert method.key == method.build.__module__.rsplit(".", 1)[-1]


@pytest.mark.parametrize("method", EVERY)
def test_it_stands_in_the_generated_pages(method):
    text = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    assert page([method]).splitlines()[-1] in text.splitlines(), "make docs"


@pytest.mark.parametrize("method", CAPABILITIES)
def test_it_needs_what_its_parts_need(method):
    kit = toy_of(method, 6)
    provided(method, kit)
    for knobs in small_knobs(method):
        more = {
            need
            for knob in method.knobs
            for place, need in knob.needs
            if knob.place_of(knobs[knob.name]) >= place
        }
        assert method.build(kit, **knobs).drafter.needs <= method.needs | more


@pytest.mark.parametrize("method", CAPABILITIES)
def test_it_plays_and_keeps_its_limit(method):
    kit = toy_of(method, 6)
    parts = method.build(kit, **small_knobs(method)[0])
    state = begin(parts, kit, Sampling(1.0, seed=3), 7)
    if parts.loop is not None and not hasattr(parts.loop, "round"):
        state.limit = len(state.tokens) - state.start + 7
        list(parts.loop(parts, kit.target, state))
    else:
        while not state.done:
            player(parts)(parts, kit.target, state)
    assert state.done and state.left == 0
