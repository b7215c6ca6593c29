"""Knobs read what people and the API send."""

from __future__ import annotations

import pytest

from specviz.core import Knob, Method

from ..message_codes import refuses

DEPTH = Knob("gamma", 4, 1, 16)
SHARE = Knob("share", 0.5, 0.0, 1.0)
SHAPE = Knob("shape", "fixed", choices=("fixed", "best"))
SWITCH = Knob("reuse", True)


@pytest.mark.parametrize(
    "knob, value, want",
    [
        (DEPTH, None, 4),
        (DEPTH, "7", 7),
        (DEPTH, 7.0, 7),
        (DEPTH, 1, 1),
        (DEPTH, 16, 16),
        (SHARE, "0.25", 0.25),
        (SHARE, 1, 1.0),
        (SHAPE, None, "fixed"),
        (SHAPE, "best", "best"),
        (SWITCH, None, True),
        (SWITCH, "false", False),
        (SWITCH, 0, False),
        (SWITCH, "True", True),
    ],
)
def test_values_that_fit(knob, value, want):
    got = knob.read(value)
    assert got == want and type(got) is type(want)


@pytest.mark.parametrize(
    "knob, value, sentence",
    [
        (DEPTH, 0, "knob.range 1 16"),
        (DEPTH, 17, "knob.range 1 16"),
        (DEPTH, -1, "knob.range"),
        (DEPTH, 1e9, "knob.range"),
        (DEPTH, 2.5, "knob.kind"),
        (DEPTH, "abc", "knob.kind"),
        (DEPTH, float("nan"), "knob.kind"),
        (DEPTH, float("inf"), "knob.kind"),
        (DEPTH, True, "knob.kind"),
        (DEPTH, [1], "knob.kind"),
        (DEPTH, {}, "knob.kind"),
        pytest.param(DEPTH, 10**400, "knob.kind", id="huge"),
        (SHARE, "1e400", "knob.kind"),
        (SHAPE, "wild", "knob.choice"),
        (SHAPE, 3, "knob.choice"),
        (SWITCH, "maybe", "knob.flag"),
        (SWITCH, [], "knob.flag"),
    ],
)
def test_values_that_do_not_fit_get_a_sentence(knob, value, sentence):
    with refuses(ValueError, *sentence.split()) as caught:
        knob.read(value)
    assert str(caught.value).startswith(knob.name)


def method(**kw):
    return Method("toy", "Toy", "", "", build=lambda kit: None, **kw)


def test_knobs_are_filled_in_and_unknown_ones_named():
    toy = method(knobs=(DEPTH, SHAPE))
    assert toy.read_knobs({"gamma": "2"}) == {"gamma": 2, "shape": "fixed"}
    with refuses(ValueError, "knob.unknown", "'width'", "gamma, shape"):
        toy.read_knobs({"width": 3})
    with refuses(ValueError, "knob.unknown"):
        method().read_knobs({"x": 1})


def test_exactness_is_one_of_four_words():
    with refuses(ValueError, "method.exactness", "toy"):
        method(exactness="lossless")


@pytest.mark.parametrize(
    "value",
    ["y" * 5000, "\u202e\x1b[2J", " z" * 3000, 10**400, [1] * 5000, {"a": "y" * 5000}, "9" * 300],
    ids=range(7),
)
def test_a_refusal_echoes_little_of_what_was_given(value):
    method = Method(
        "m",
        "M",
        "",
        "",
        knobs=(Knob("count", 1, 0, 9), Knob("flag", True), Knob("kind", "a", choices=("a", "b"))),
    )
    for given in ({"count": value}, {"flag": value}, {"kind": value}, {str(value): 1}):
        with pytest.raises(ValueError) as refused:
            method.read_knobs(given)
        assert len(str(refused.value)) < 160 and str(refused.value).isprintable()
