"""Test martingales: rarely large under the null hypothesis, certain to find the mistakes they bet on."""

from __future__ import annotations

import torch

from specviz.evidence.betting import TestMartingale
from specviz.evidence.token_bets import APART, BIAS, NodeTest, Token, bet

VOCAB = 12


def tokens(kind: str, mistake: bool, seed: int, count: int = 60) -> TestMartingale:
    """Bets on tokens of one kind from random distributions, sampled correctly or with the kind's main
    mistake."""
    rng = torch.Generator().manual_seed(seed)
    apart = {name: TestMartingale(why) for name, why in APART.items()}

    def one(probs):
        return int(torch.multinomial(probs, 1, generator=rng))

    for _ in range(count):
        p, q, raw = (torch.randn(VOCAB, generator=rng, dtype=torch.float64).softmax(-1) for _ in range(3))
        if kind in ("bonus", "first"):
            bet(
                apart, Token(int(p.argmax()) if mistake else one(p), kind, p, raw, first=kind == "first"), rng
            )
            continue
        drafted = one(q)
        rate = float(p[drafted] / q[drafted]) * (BIAS if kind == "tested" and mistake else 1)
        if kind == "accepted" and mistake or float(torch.rand(1, generator=rng)) < rate:
            bet(apart, Token(drafted, "accepted", p, raw, draft=q, tests=(NodeTest(drafted, q, True),)), rng)
        else:
            right = one((p - q).clamp(min=0))
            token = one(p) if kind == "correction" and mistake else right
            bet(apart, Token(token, "correction", p, raw, draft=q, tests=(NodeTest(drafted, q, False),)), rng)
    return apart[kind]


def test_a_correct_method_is_rarely_suspected():
    for kind in APART:
        found = [tokens(kind, False, seed).p for seed in range(60)]
        assert sum(p < 0.05 for p in found) <= 10 and min(found) > 1e-4, kind


def test_each_mistake_is_found_as_often_as_the_power_says():
    for kind in APART:
        count = 1500 if kind == "tested" else 200
        right = tokens(kind, False, 0, count)
        assert right.power(1e-5) > 0.99 and right.p > 1e-3, (kind, right.power(1e-5))
        assert all(tokens(kind, True, seed, count).p < 1e-5 for seed in range(5 if count < 999 else 1)), kind


def test_few_observations_have_no_power():
    assert (
        tokens("bonus", False, 0, 1).power(1e-5) == 0
        and TestMartingale("none").power(1e-5) is TestMartingale("none").p is None
    )
