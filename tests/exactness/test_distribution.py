"""The distribution of the real engine, cache included, at temperatures above 0: every run of every exact
method, enumerated."""

from __future__ import annotations

import pytest

from specviz.core import Sampling

from .enumeration import TooMany, distance, joint, probs_of_engine
from .toys import (
    DEEP,
    PROMPT,
    SMALL,
    TinyTarget,
    begin,
    cache_error,
    later,
    methods,
    named,
    provided,
    sample,
    small_knobs,
    toy_of,
)

SAMPLE = sample()


def cases(table: dict, most: int) -> list:
    """Every exact method with every small setting. ``make test`` takes the first ``most`` of each method of
    the sample."""
    return [
        later(named(method, knobs), method.key in SAMPLE and i < most)
        for method in methods("exact")
        for i, knobs in enumerate(small_knobs(method, table))
    ]


EXACT = cases(SMALL, 2)
COUNT = 3
MANY, FEW = (
    400,
    60,
)  # endings of the opening round at V=3 beyond which later rounds, and V=4, would take too long


def enumerate_method(method, knobs, sampling, vocab, *, warm, stop=frozenset(), count=COUNT, most=10**9):
    """Distance of the method's distribution from the target's, how many endings there are, draft tokens
    expected to be accepted, refusals."""
    kit, accepted, refused = (
        toy_of(method, vocab, share=0.5, sharp=0.8),
        [0.0],
        [0.0],
    )  # cells that after_round adds to
    provided(method, kit)
    parts = method.build(kit, **knobs)
    state = begin(parts, kit, sampling, count, warm, prompt=[token % vocab for token in PROMPT], stop=stop)
    fresh = TinyTarget(kit.net, kit.context)

    def after_round(target, state, outcome, prob):
        accepted[0] += prob * len(outcome.verdict.path)
        refused[0] += prob * (outcome.verdict.kind == "correction")
        assert cache_error(target, fresh, state.tokens) < 1e-12

    want = joint(kit.net.logits, state.tokens, count, sampling, vocab, stop)
    probs, endings = probs_of_engine(parts, kit.target, state, count, after_round, (kit.net, kit.small), most)
    assert sum(probs.values()) == pytest.approx(1, abs=1e-12)
    return distance(probs, want), endings, accepted[0], refused[0]


@pytest.mark.parametrize("method, knobs", EXACT)
def test_the_joint_distribution_of_three_tokens_is_the_targets(method, knobs):
    """On the opening round and on runs two rounds old, so that pools and tables are both empty and filled."""
    off, opening, taken, refused = enumerate_method(method, knobs, Sampling(1.0), 3, warm=0)
    assert off < 1e-12 and opening >= 2**COUNT, "a toy with few endings proves little"
    if opening <= MANY:
        off, _, accepted, more = enumerate_method(
            method, knobs, Sampling(1.0), 4 if opening <= FEW else 3, warm=2
        )
        assert off < 1e-12
        taken, refused = taken + accepted, refused + more
    assert (taken > 0.1) == (refused > 0.01) == (method.key != "autoregressive"), (
        "nothing accepted, or nothing refused, proves little"
    )


@pytest.mark.parametrize("method, knobs", cases(SMALL, 1))
def test_temperature_top_k_and_top_p_hold_on_both_sides(method, knobs):
    off, endings, *_ = enumerate_method(method, knobs, Sampling(0.7, top_k=3, top_p=0.93), 4, warm=1, count=2)
    assert off < 1e-12 and endings >= 3


@pytest.mark.parametrize("method, knobs", cases(DEEP, 0))
def test_the_joint_distribution_of_four_tokens_with_drafts_of_three(method, knobs):
    """Over two tokens, on a run that is three rounds old."""
    try:
        off, endings, *_ = enumerate_method(method, knobs, Sampling(1.0), 2, warm=3, count=4, most=1500)
    except TooMany:
        off, endings, *_ = enumerate_method(method, knobs, Sampling(1.0), 2, warm=3)
    assert off < 1e-12 and endings >= 8


@pytest.mark.parametrize("method, knobs", cases(SMALL, 1))
def test_the_distribution_holds_with_an_end_token(method, knobs):
    """An accepted end token ends the run inside a draft; the distribution of what is written is still the
    target's."""
    off, endings, *_ = enumerate_method(method, knobs, Sampling(1.0, top_k=2), 3, warm=0, stop=frozenset({0}))
    assert off < 1e-12 and endings >= 4
