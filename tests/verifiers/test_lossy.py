"""Lossy rules: what they accept, how far they stray, and that they say so."""

import math

import pytest
import torch

from specviz.core import DraftTree, RandomStreams, Sampling, Scores, State
from specviz.methods import catalogue
from specviz.verifiers import Lenient, Mixture, TokenRejection, Typical, UncertaintyTolerant
from specviz.verifiers.drift import kl_divergence

from ..methods.toys import distance, greedy, kit, probs_of, round_probs, run, table, target_probs

P, Q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
ONE = Sampling(1.0)


def one_draw(probs):
    def propose(state):
        return DraftTree.chain([state.rng.pick("draft", probs)], probs[None])

    return propose


@pytest.mark.parametrize("lenience", [1.0, 0.5, 0.2])
def test_lenience_follows_its_closed_form(lenience):
    """e(x) = q a + (1 - sum q a) residual, and the drift noted is KL(p, e)."""
    a = (P / (lenience * Q)).clamp(max=1)
    want = Q * a + (1 - (Q * a).sum()) * (P - Q).clamp(min=0) / (P - Q).clamp(min=0).sum()
    probs, _, first = round_probs(one_draw(Q), Lenient(lenience), lambda c: P, 1)
    assert distance({x: p for (x,), p in probs.items()}, dict(enumerate(want.tolist()))) < 1e-12
    assert first == pytest.approx(float((Q * a).sum()))
    state = State([0], ONE, RandomStreams(1))
    Lenient(lenience).verify(DraftTree.chain([1], Q[None]), Scores(P.log().repeat(2, 1)), state)
    assert state.notes[0] == ("drift", {"nats": [pytest.approx(kl_divergence(P, want))]})
    assert dict(state.notes)["exchange"]["strays"] == [pytest.approx(0.5 * float((want - P).abs().sum()))]
    assert (kl_divergence(P, want) < 1e-12) == (lenience == 1.0)


def test_lenience_of_one_is_exact_and_a_lower_one_accepts_more_and_strays():
    target, draft = table(4, 1), table(4, 2)
    want = target_probs(target, 4, 1)
    gained = []
    decision_drift = []
    for verifier in (TokenRejection(), Lenient(1.0), Lenient(0.6), Lenient(0.3)):
        probs, accepted, _ = round_probs(one_draw(draft([])), verifier, target, 1)
        gained.append(accepted)
        decision_drift.append(distance(probs, want))
    assert gained[0] == pytest.approx(gained[1]) and gained[1] < gained[2] < gained[3]
    assert max(decision_drift[:2]) < 1e-12 and 1e-3 < decision_drift[2] < decision_drift[3]


@pytest.mark.parametrize("lenience,path", [(0.3, (0, 1)), (0.5, (0,)), (0.8, ())])
def test_greedy_lenience_compares_with_the_best(lenience, path):
    rows = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]]).log()
    state = State([0], Sampling(), RandomStreams(0))
    verdict = Lenient(lenience).verify(DraftTree.chain([1, 2]), Scores(rows), state)
    assert verdict.path == path and verdict.token == (0, 0, 2)[len(path)]
    assert bool(state.notes) == bool(path)


def test_typical_acceptance_is_a_threshold_that_falls_with_entropy():
    sharp, flat = torch.tensor([0.9, 0.06, 0.04]), torch.full((3,), 1 / 3)
    for probs, x, ok in ((sharp, 0, True), (sharp, 1, False), (flat, 2, True)):
        verdict = Typical().verify(
            DraftTree.chain([x]), Scores(probs.log().repeat(2, 1)), State([0], ONE, RandomStreams(0))
        )
        assert (verdict.path == (0,)) == ok
    assert Typical(floor=0.05).verify(
        DraftTree.chain([1]), Scores(sharp.log().repeat(2, 1)), State([0], ONE, RandomStreams(0))
    ).path == (0,)


@pytest.mark.parametrize("probs", [[0.5, 0.3, 0.15, 0.05], [0.9, 0.06, 0.03, 0.01], [0.25, 0.25, 0.25, 0.25]])
@pytest.mark.parametrize("floor, share", [(0.09, 0.3), (1.0, 0.3), (1.0, 0.9)])
def test_typical_acceptance_is_its_formula(probs, floor, share):
    """p(x) > min(floor, share exp(-H)), H in nats; with the floor out of the way it is the entropy that
    decides."""
    least = min(floor, share * math.exp(sum(p * math.log(p) for p in probs)))
    for x in range(4):
        scores = Scores(torch.tensor(probs, dtype=torch.float64).log().repeat(2, 1))
        verdict = Typical(floor, share).verify(
            DraftTree.chain([x]), scores, State([0], ONE, RandomStreams(0))
        )
        assert (verdict.path == (0,)) == (probs[x] > least)


def test_typical_acceptance_keeps_the_longest_path_and_of_equals_the_likeliest():
    """As Medusa's evaluation does; the first child that passes may lead nowhere."""
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)

    def judged(tokens, parents):
        tree = DraftTree(tokens, parents, (-1,) * len(tokens))
        verdict = Typical().verify(
            tree, Scores(probs.log().repeat(1 + len(tree), 1)), State([0], ONE, RandomStreams(0))
        )
        return verdict.path, [(t.node, t.verdict) for t in verdict.decisions], verdict.kind

    assert judged((0, 1, 3, 2), (-1, -1, 0, 1))[0] == (1, 3), "token 0 passes, but nothing below it does"
    path, decisions, kind = judged((1, 0, 2, 2, 3), (-1, -1, 0, 1, 1))
    assert path == (1, 3) and kind == "bonus", "of two paths of two the likelier one"
    assert decisions == [(0, "skipped"), (1, "accepted"), (2, "skipped"), (3, "accepted"), (4, "rejected")]
    assert judged((3,), (-1,)) == ((), [(0, "rejected")], "correction")


def test_a_refusal_by_typical_acceptance_draws_from_the_targets_distribution():
    """Only where it is asked to: the authors take the argmax, or draw from the tokens that would have
    passed."""
    probs = torch.tensor([0.7, 0.26, 0.04], dtype=torch.float64)
    chain, scores = DraftTree.chain([2]), Scores(probs.log().repeat(2, 1))
    for last, want in (
        ("distribution", {0: 0.7, 1: 0.26, 2: 0.04}),
        ("typical", {0: 0.7 / 0.96, 1: 0.26 / 0.96}),
        ("argmax", {0: 1.0}),
    ):
        got = probs_of(
            lambda rng, rule=Typical(last=last): rule.verify(chain, scores, State([0], ONE, rng)).token
        )
        probs_after = Typical(last=last).verify(chain, scores, State([0], ONE, RandomStreams(0))).probs
        assert distance(got, want) < 1e-12 and distance(dict(enumerate(probs_after.tolist())), want) < 1e-12
    flat = torch.full((40,), 1 / 40, dtype=torch.float64)
    assert float(Typical(0.09, 1.0, "typical").after(flat).sum()) == 1, (
        "where no token is likely enough there is still one"
    )


def test_they_run_and_say_that_they_are_not_exact():
    things, prompt = kit(12, 0.9, 3), [1, 2, 0, 3, 1, 2]
    for key in ("lenience", "typical_acceptance"):
        method = catalogue()[key]
        assert method.exactness == "approximate"
        for sampling in (Sampling(), ONE):
            tokens, outcomes = run(method, things, prompt, 30, sampling)
            assert len(tokens) == 30 and len(outcomes) < 30
    assert run(catalogue()["typical_acceptance"], things, prompt, 30)[0] == greedy(things.net, prompt, 30)
    assert run(catalogue()["lenience"], things, prompt, 30, lenience=1.0)[0] == greedy(things.net, prompt, 30)


@pytest.mark.parametrize("weight", [1.0, 0.7, 0.25, 0.0])
def test_a_mixture_writes_the_mixture_and_accepts_one_minus_w_times_the_distance(weight):
    """The two closed forms of DIVERSED's line, enumerated; the drift noted is KL(p, v)."""
    want, apart = weight * P + (1 - weight) * Q, 0.5 * float((P - Q).abs().sum())
    probs, _, first = round_probs(one_draw(Q), Mixture(weight), lambda c: P, 1)
    assert distance({x: p for (x,), p in probs.items()}, dict(enumerate(want.tolist()))) < 1e-12
    assert first == pytest.approx(1 - weight * apart)
    assert distance(dict(enumerate(want.tolist())), dict(enumerate(P.tolist()))) == pytest.approx(
        (1 - weight) * apart
    )
    state = State([0], ONE, RandomStreams(1))
    Mixture(weight).verify(DraftTree.chain([1], Q[None]), Scores(P.log().repeat(2, 1)), state)
    line = {"accepted": 1 - weight * apart, "strays": (1 - weight) * apart, "apart": apart}
    assert state.notes == [
        ("drift", {"nats": [pytest.approx(kl_divergence(P, want), abs=1e-12)]}),
        ("exchange", {name: [pytest.approx(value, abs=1e-12)] for name, value in line.items()}),
    ]


def test_no_lossy_rule_accepts_more_than_the_mixture_at_its_distance():
    """Lenience and EARS at the distance from the target that they have, against the mixture of the same."""
    apart = 0.5 * float((P - Q).abs().sum())
    for verifier in (Lenient(0.8), Lenient(0.5), UncertaintyTolerant(0.2), UncertaintyTolerant(0.6)):
        probs, _, first = round_probs(one_draw(Q), verifier, lambda c: P, 1)
        strays = distance({x: p for (x,), p in probs.items()}, dict(enumerate(P.tolist())))
        assert 0 < strays <= apart and first <= 1 - apart + strays + 1e-12


@pytest.mark.parametrize("weight, path", [(0.9, ()), (0.7, (0,)), (0.5, (0, 1))])
def test_a_greedy_mixture_takes_its_argmax(weight, path):
    """(1 - w) / w is how much less probable than the argmax a drafted token may be: here 0.2 and 0.7."""
    rows = torch.tensor([[0.5, 0.3, 0.2], [0.85, 0.0, 0.15], [0.1, 0.1, 0.8]]).log()
    state = State([0], Sampling(), RandomStreams(0))
    verdict = Mixture(weight).verify(DraftTree.chain([1, 2]), Scores(rows), state)
    assert verdict.path == path and verdict.token == (0, 0, 2)[len(path)]


@pytest.mark.parametrize("tolerance", [0.0, 0.3, 1.0])
def test_ears_lowers_the_draw_by_the_targets_doubt(tolerance):
    """The draw u, uniform: accepted iff max(0, u - tolerance (1 - max p)) < p / q, and never where p = 0."""
    target = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64)
    draws = torch.linspace(0, 1, 200_001, dtype=torch.float64)
    low = (draws - tolerance * 0.4).clamp(min=1e-300)
    want = [float((low < ratio).double().mean()) for ratio in (target / Q).tolist()]
    accept = UncertaintyTolerant(tolerance).acceptance(target, Q).clamp(max=1)
    assert accept.tolist() == pytest.approx(want, abs=1e-4) and float(accept[2]) == 0
    probs, _, _ = round_probs(one_draw(Q), UncertaintyTolerant(tolerance), lambda c: P, 1)
    strays = distance({x: p for (x,), p in probs.items()}, dict(enumerate(P.tolist())))
    assert (strays < 1e-12) == (tolerance == 0)


def test_ears_is_exact_at_temperature_zero():
    things = kit(12, 0.5, 3)
    tokens, _ = run(catalogue()["ears"], things, [1, 2, 0, 3], 30, tolerance=1.0)
    assert tokens == greedy(things.net, [1, 2, 0, 3], 30)
