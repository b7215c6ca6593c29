"""Test martingales: rarely large under the null hypothesis, certain to find the mistakes they bet on."""

from __future__ import annotations

import pytest
import torch

from specviz.core import IID, WITHOUT_REPLACEMENT, DraftTree, Sampling
from specviz.evidence.betting import TestMartingale
from specviz.evidence.drafted_tokens import SIBLING, DraftedTokens
from specviz.evidence.statistics import uniformity_p_values
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
        if kind == "second":
            second = torch.nn.functional.one_hot(p.topk(2).indices[1], VOCAB)
            bet(apart, Token(one(p * (1 - second)) if mistake else one(p), "bonus", p, raw), rng)
            continue
        if kind == "unprocessed":
            bet(apart, Token(one(raw) if mistake else one(p), "bonus", p, raw, unprocessed=raw), rng)
            continue
        if kind == "copied":
            chosen, token = one(p), one(p)
            again = one(p) if mistake and token != chosen else token
            bet(apart, Token(again, "correction", p, raw, chosen=frozenset({chosen})), rng)
            continue
        if kind == "ranked":
            sharp = q**4 / (q**4).sum()  # so that the first sibling has much of the probability
            bet(apart, later_sibling(p, sharp, mistake, one, rng), rng)
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


def later_sibling(p, q, mistake, one, rng) -> Token:
    """Two independent siblings, of which the first is rejected; the mistake tests the second as if drawn
    without replacement."""
    while True:
        first, second = one(q), one(q)
        if float(torch.rand(1, generator=rng)) >= float(p[first] / q[first]):
            break
    left = (p - q).clamp(min=0)
    left /= left.sum()
    other = q.clone()
    other[first] = 0
    other /= other.sum()
    drafted = float((other if mistake else q)[second])
    accepted = drafted == 0 or float(torch.rand(1, generator=rng)) < float(left[second]) / drafted
    tests = NodeTest(first, q, False), NodeTest(second, q, accepted, other=other)
    rest = (left - q).clamp(min=0)
    token = second if accepted else one(rest if float(rest.sum()) > 0 else left)
    return Token(token, "accepted" if accepted else "correction", p, p, tests=tests)


@pytest.mark.parametrize("seeds", [15, pytest.param(60, marks=pytest.mark.thorough)])
def test_a_correct_method_is_rarely_suspected(seeds):
    for kind in APART:
        found = [p for seed in range(seeds) if (p := tokens(kind, False, seed).p) is not None]
        assert sum(p < 0.05 for p in found) <= 2 + seeds // 7 and min(found) > 1e-4, kind


COUNTS = {"tested": 1500, "ranked": 3500, "second": 600, "copied": 1200}  # the others need 200


@pytest.mark.thorough
@pytest.mark.parametrize("kind", APART)
def test_each_mistake_is_found_as_often_as_the_power_says(kind):
    count = COUNTS.get(kind, 200)
    right = tokens(kind, False, 0, count)
    assert right.power(1e-5) > 0.99 and right.p > 1e-3, right.power(1e-5)
    assert all(tokens(kind, True, seed, count).p < 1e-5 for seed in range(3 if count < 500 else 1))


def test_few_observations_have_no_power():
    assert (
        tokens("bonus", False, 0, 1).power(1e-5) == 0
        and TestMartingale("none").power(1e-5) is TestMartingale("none").p is None
    )


@pytest.mark.parametrize("label", [IID, WITHOUT_REPLACEMENT])
def test_drafted_tokens_are_uniform_under_what_is_recorded_and_found_where_it_is_not(label):
    right, wrong = drafts(label, label), drafts(label, WITHOUT_REPLACEMENT if label == IID else IID)
    assert min(p for values in right.ranks.values() for p in uniformity_p_values(values)) > 1e-3
    assert not right.impossible and min(test.p for test in right.apart.values()) > 1e-3
    assert right.apart[SIBLING].power(1e-5) > 0.99
    assert wrong.impossible or wrong.apart[SIBLING].p < 1e-5


def drafts(recorded: str, drawn: str) -> DraftedTokens:
    """Trees of three siblings under the root."""
    rng, made = torch.Generator().manual_seed(5), DraftedTokens()
    for _ in range(300):
        q = torch.randn(VOCAB, generator=rng, dtype=torch.float64).softmax(-1)
        found = torch.multinomial(q, 3, replacement=drawn == IID, generator=rng).tolist()
        tree, draw = DraftTree().begin(q, recorded)
        for token in found:
            tree = tree.add(token, -1, draw)
        made.add(tree, Sampling(1.0), rng, {}, 0)
    return made


def test_a_token_that_is_kept_for_the_next_round_counts_once():
    rng, made, known = torch.Generator().manual_seed(1), DraftedTokens(), {}
    q = torch.rand(2, VOCAB, generator=rng).softmax(-1)
    made.add(DraftTree.chain([1, 2], q), Sampling(1.0), rng, known, 10)
    made.add(DraftTree.chain([2], q[1:]), Sampling(1.0), rng, known, 11)
    assert sum(map(len, made.ranks.values())) == 2
    made.add(DraftTree.chain([2], q[1:]), Sampling(1.0), rng, known, 12)
    assert sum(map(len, made.ranks.values())) == 3
