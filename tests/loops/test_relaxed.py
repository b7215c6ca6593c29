"""Verification that lets more pass than the target would write: SpecDec's top-beta and tau, BiLD's
rollback. Which tokens, at what price, and that they say so."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, RandomStreams, Sampling, Scores, State
from specviz.methods import catalogue
from specviz.verifiers.allowed_tokens import AllowedTokens, Rollback, TopBeta
from specviz.verifiers.drift import kl_divergence

from ..exactness.toys import PROMPT, greedy, toy
from ..methods.toys import distance, probs_of, round_probs
from .toys import decode, notes

P, Q = (
    torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64),
    torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64),
)
ONE = Sampling(1.0)


def passing(rule, probs=P):
    return rule.allowed_mask(probs.log()).nonzero()[:, 0].tolist()


@pytest.mark.parametrize(
    "beta, tau, want",
    [
        (1, 9.0, [0]),
        (2, 9.0, [0, 1]),
        (4, 9.0, [0, 1, 2, 3]),
        (9, 9.0, [0, 1, 2, 3]),
        (4, 0.0, [0]),
        (4, 0.52, [0, 1]),
        (4, 0.5, [0]),
        (3, 1.21, [0, 1, 2]),
    ],
)
def test_top_beta_and_tau_both_hold(beta, tau, want):
    assert passing(TopBeta(beta, tau)) == want


@pytest.mark.parametrize(
    "bound, want", [(0.0, [0]), (0.6, [0]), (0.7, [0]), (1.21, [0, 1]), (1.9, [0, 1, 2]), (3.0, [0, 1, 2, 3])]
)
def test_rollback_takes_what_is_too_unlikely_but_never_the_best(bound, want):
    assert passing(Rollback(bound)) == want


@pytest.mark.parametrize(
    "rule", [TopBeta(2, 3.0), TopBeta(4, 1.3), Rollback(1.5)], ids=["beta 2", "tau 1.3", "rollback"]
)
def test_the_distribution_followed_and_the_drift_have_a_closed_form(rule):
    """e(x) = q(x) where x passes, and the rest of the mass is drawn from p; the drift noted is KL(p, e)."""
    kept = Q * rule.allowed_mask(P.log())
    want = kept + (1 - kept.sum()) * P

    def propose(state):
        return DraftTree.chain([state.rng.pick("draft", Q)], Q[None])

    probs, _, first = round_probs(propose, rule, lambda context: P, 1)
    assert distance({x: p for (x,), p in probs.items()}, dict(enumerate(want.tolist()))) < 1e-12
    assert (
        first == pytest.approx(float(kept.sum()))
        and distance(dict(enumerate(want.tolist())), dict(enumerate(P.tolist()))) > 0.01
    )
    state = State([0], ONE, RandomStreams(1))
    rule.verify(DraftTree.chain([1], Q[None]), Scores(P.log().repeat(2, 1)), state)
    assert ("drift", {"nats": [pytest.approx(kl_divergence(P, want))]}) in state.notes


def test_a_chosen_token_strays_as_far_as_the_distribution_that_has_only_it():
    state = State([0], ONE, RandomStreams(1))
    verdict = TopBeta(4, 9.0).verify(DraftTree.chain([3]), Scores(P.log().repeat(2, 1)), state)
    assert verdict.path == (0,) and state.notes[0][1]["nats"][0] > 10, "nothing but token 3 can come out"


def test_a_refusal_draws_from_the_targets_distribution_and_ends_the_draft():
    chain, scores = DraftTree.chain([3, 0], torch.stack([Q, Q])), Scores(P.log().repeat(3, 1))
    got = probs_of(
        lambda rng: (
            TopBeta(2, 3.0).verify(chain, scores, State([0], ONE, rng)).path,
            TopBeta(2, 3.0).verify(chain, scores, State([0], ONE, rng)).token,
        )
    )
    assert {path for path, _ in got} == {()}
    assert (
        distance(
            {x: sum(c for (_, t), c in got.items() if t == x) for x in range(4)}, dict(enumerate(P.tolist()))
        )
        < 1e-12
    )


def test_at_temperature_zero_the_drift_is_the_log_probability_given_up():
    state = State([0], Sampling(), RandomStreams(0))
    verdict = TopBeta(3, 3.0).verify(DraftTree.chain([1, 2, 3]), Scores(P.log().repeat(4, 1)), state)
    assert verdict.path == (0, 1) and verdict.token == 0 and verdict.kind == "correction"
    assert state.notes == [
        (
            "drift",
            {
                "nats": [
                    pytest.approx(torch.tensor(0.5 / 0.3).log()),
                    pytest.approx(torch.tensor(0.5 / 0.15).log()),
                ]
            },
        )
    ]


def test_rollback_cuts_before_the_first_token_that_is_too_unlikely_and_says_where():
    state = State([5, 6], Sampling(), RandomStreams(0))
    verdict = Rollback(1.5).verify(DraftTree.chain([1, 3, 0]), Scores(P.log().repeat(4, 1)), state)
    assert (verdict.path, verdict.token, verdict.kind) == ((0,), 0, "correction")
    note = dict(state.notes)["rollback"]
    assert note["at"] == 2 and note["back"] and note["gone"] == 2 and note["bound"] == 1.5
    assert note["nats"] == pytest.approx((-P.log()[[1, 3]]).tolist(), abs=1e-4), (
        "the third one was never looked at"
    )


def test_a_rule_must_say_what_passes():
    with pytest.raises(TypeError, match="AllowedTokens"):
        AllowedTokens().verify(DraftTree.chain([1]), Scores(P.log().repeat(2, 1)), State([0]))


def test_specdec_is_exact_at_temperature_zero_with_beta_one_and_strays_with_more():
    kit = toy(12, share=0.6, sharp=2.0)
    want = greedy(kit.net.logits, PROMPT, 40)
    strict, events = decode("specdec", kit, PROMPT, 40, knobs={"beta": 1})
    assert strict.tokens == want and {x for note in notes(events, "drift") for x in note["nats"]} == {0.0}
    loose, events = decode("specdec", kit, PROMPT, 40, knobs={"beta": 5, "tau": 6.0})
    assert loose.tokens != want and max(x for note in notes(events, "drift") for x in note["nats"]) > 0.1
    assert loose.round < strict.round and catalogue()["specdec"].exactness == "approximate"
