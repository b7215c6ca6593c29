"""Speculative cascades follow their mixture exactly, equal plain decoding at temperature 0 without
tolerance, and say how far they stray."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, RandomStreams, Sampling, Scores, State
from specviz.verifiers.cascade import CascadeRejection, cascade
from specviz.verifiers.drift import kl_divergence

from ..methods.toys import distance, round_probs

P, Q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


def one_draw(state):
    return DraftTree.chain([state.rng.pick("draft", Q)], Q[None])


def by_hand(alpha):
    kept = [p >= (1 - alpha) * 0.5 for p in P.tolist()]
    deferred = sum(q for q, keep in zip(Q.tolist(), kept) if not keep)
    return [q * keep + p * deferred for p, q, keep in zip(P.tolist(), Q.tolist(), kept)]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.45, 0.7, 1.0])
def test_the_output_follows_the_mixture(alpha):
    want = by_hand(alpha)
    assert sum(want) == pytest.approx(1) and cascade(P, Q, alpha).tolist() == pytest.approx(want)
    probs, _, accepted = round_probs(one_draw, CascadeRejection(alpha), lambda context: P, 1)
    assert distance({x: p for (x,), p in probs.items()}, dict(enumerate(want))) < 1e-12
    assert accepted == pytest.approx(sum(min(a, b) for a, b in zip(want, Q.tolist())))
    state = State([0], Sampling(1.0), RandomStreams(1))
    CascadeRejection(alpha).verify(DraftTree.chain([1], Q[None]), Scores(P.log().repeat(2, 1)), state)
    assert (
        "drift",
        {"nats": [pytest.approx(kl_divergence(P, torch.tensor(want, dtype=P.dtype)))]},
    ) in state.notes
    assert (alpha >= 0.6) == (want == pytest.approx(Q.tolist()))


def test_a_larger_alpha_accepts_more():
    rates = [
        round(round_probs(one_draw, CascadeRejection(alpha), lambda context: P, 1)[2], 9)
        for alpha in (0.0, 0.45, 0.7)
    ]
    assert rates == sorted(rates) and rates[0] < rates[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("alpha, path", [(0.0, ()), (0.4, (0,)), (0.7, (0, 1))])
def test_at_temperature_0_a_token_passes_by_its_probability(alpha, path):
    rows = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]]).log()
    verdict = CascadeRejection(alpha).verify(
        DraftTree.chain([1, 2]), Scores(rows), State([0], Sampling(), RandomStreams(0))
    )
    assert verdict.path == path and verdict.token == (0, 0, 2)[len(path)]


def test_a_chosen_token_is_a_sample_of_its_own_distribution():
    one_hot = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    probs, _, accepted = round_probs(
        lambda state: DraftTree.chain([2]), CascadeRejection(0.3), lambda context: P, 1
    )
    assert (
        distance({x: p for (x,), p in probs.items()}, dict(enumerate(cascade(P, one_hot, 0.3).tolist())))
        < 1e-12
    )
    assert accepted == pytest.approx(0.2)
