"""Adaptive verification: the model of acceptance finds what made the labels, the budget is the best there
is, and what is cut depends on nothing that was drawn."""

from __future__ import annotations

import math
import random

import pytest

from specviz.core import DraftTree, FixedCosts, Origin, State, TreeBuilder
from specviz.policies import AdaptiveVerification
from specviz.policies.acceptance_model import CLAMP, AcceptanceModel, MatchRates, log_odds
from specviz.policies.adaptive_verification import match_of
from specviz.policies.goodput import OPENING, pass_features

from .test_joint import outcome, states, sure


def test_log_odds_are_those_of_the_most_probable_token_and_bounded():
    assert log_odds(0.5) == 0 and log_odds(0.9) == pytest.approx(math.log(9))
    assert log_odds(1.0) == CLAMP and log_odds(0.0) == -CLAMP


def test_the_model_finds_slope_and_intercepts_that_made_the_labels():
    """Labels stop at the first rejection, as in a verified chain."""
    rng, model, true = random.Random(3), AcceptanceModel(every=500), (0.8, (0.5, -0.3, -1.0))
    for _ in range(6000):
        for place in range(3):
            feature = rng.gauss(0.5, 2.0)
            prob = 1 / (1 + math.exp(-(true[0] * feature + true[1][place])))
            ok = rng.random() < prob
            model.learn(feature, place, ok)
            if not ok:
                break
        model.end_round()
    assert model.slope == pytest.approx(true[0], abs=0.15)
    assert model.intercepts == pytest.approx(true[1], abs=0.35)


def test_one_step_is_newtons_with_damping():
    """Two labels of one place, by hand: s = sigmoid(0.5 f - 0.2)."""
    model = AcceptanceModel(every=1)
    model.learn(1.0, 0, True)
    model.learn(-1.0, 0, True)
    s = [1 / (1 + math.exp(-x)) for x in (0.3, -0.7)]
    v = [x * (1 - x) for x in s]
    a, b, c = v[0] + v[1] + 1e-3, v[0] - v[1], v[0] + v[1] + 1e-3
    g0, g = (1 - s[0]) - (1 - s[1]), (1 - s[0]) + (1 - s[1])
    slope = (g0 - b * g / c) / (a - b * b / c) * 2 / 52
    model.end_round()
    assert model.slope == pytest.approx(0.5 + slope)
    assert model.intercepts[0] == pytest.approx(-0.2 + (g - b * slope) / c * 2 / 52)


def test_a_slope_below_zero_is_not_taken():
    model = AcceptanceModel(every=10**6, slope=0.01)
    for _ in range(4000):
        model.learn(3.0, 0, False)
        model.learn(-3.0, 0, True)
    model.step()
    assert model.slope == 0.01


def test_counts_of_copies_are_kept_by_source_match_and_place():
    rates = MatchRates()
    before = rates.prob(("context", 3), 0)
    for _ in range(40):
        rates.learn(("context", 3), 0, False)
    assert rates.prob(("context", 3), 0) < 0.1 < before
    assert rates.prob(("context", 8), 0) > before and rates.prob(("answers", 3), 0) == before


def trained(policy, many=1, rounds=8):
    """A policy whose opening is over, on fixed costs."""
    crowd = states(many)
    for state in crowd:
        state.costs = FixedCosts()
    for _ in range(rounds):
        budgets = policy.plan_all(crowd)
        trees = [draft(budget, [0.8] * budget.gamma) for budget in budgets]
        shared = policy.share(crowd, trees)
        policy.learn_all(crowd, [outcome(len(tree), len(tree)) for tree in shared])
    return crowd


def draft(budget, probs):
    """A chain of a draft model with these top-1 probabilities, until it stops."""
    count = 0
    for depth, prob in enumerate(probs[: budget.gamma]):
        count += 1
        if budget.stop(sure(prob, depth)):
            break
    return DraftTree.chain([1] * count)


@pytest.mark.parametrize("many", [1, 3])
def test_the_budget_is_the_best_of_all_budgets(many):
    policy = AdaptiveVerification(6, threshold=False)
    crowd = trained(policy, many)
    policy.before = [[0.9**k for k in range(1, 7)], [0.5, 0.2], [0.7, 0.6, 0.1]][:many]
    policy._choose(crowd)
    pool = []
    for line in policy.before:
        while len(line) < 6:
            line.append(line[-1] * policy.means[len(line)])
        pool += [(survival, depth + 1) for depth, survival in enumerate(line)]
    pool.sort(key=lambda one: (-one[0], one[1]))
    context = sum(len(state.tokens) for state in crowd)

    def rate(count):
        levels = max((depth for _, depth in pool[:count]), default=0)
        seconds = policy.pass_cost.seconds(*pass_features(many + count, levels, context))
        seconds += policy.draft_cost.seconds(levels, count) if count else 0.0
        return (many + sum(survival for survival, _ in pool[:count])) / seconds

    assert policy.budget == max(range(len(pool) + 1), key=rate) > 0


@pytest.mark.parametrize("threshold", [True, False])
def test_sure_drafts_are_verified_further_than_doubtful_ones(threshold):
    policy = AdaptiveVerification(6, uncut=0, threshold=threshold)
    crowd, given = trained(policy, 2), []
    for _ in range(4):
        budgets = policy.plan_all(crowd)
        trees = [draft(budgets[0], [0.99] * 6), draft(budgets[1], [0.3] * 6)]
        shared = policy.share(crowd, trees)
        policy.learn_all(crowd, [outcome(len(shared[0]), len(shared[0])), outcome(len(shared[1]), 0)])
        given.append([len(tree) for tree in shared])
    assert given[-1][0] > given[-1][1]


def test_a_copy_is_cut_by_the_length_of_its_match():
    policy = AdaptiveVerification(8, steps=False, uncut=0)
    crowd = trained(policy)
    policy.rounds = len(OPENING)

    def copied(start):
        build = TreeBuilder()
        build.chain([5] * 8, [Origin("context", at, at + 1) for at in range(start, start + 8)])
        return build.tree()

    lengths = []
    for tokens, start in (([1, 2, 3, 4] * 8, 4), ([9, *range(20, 50), 9], 1)):
        crowd[0].tokens = list(tokens)
        policy.plan_all(crowd)
        lengths.append(len(policy.share(crowd, [copied(start)])[0]))
    assert match_of(copied(4), [1, 2, 3, 4] * 2) == ("context", 4)
    assert lengths[0] >= 6 > 2 >= lengths[1]


def test_with_nothing_accepted_drafting_ends_and_is_tried_again():
    policy = AdaptiveVerification(4, uncut=0)
    crowd, lengths = states(1), []
    crowd[0].costs = FixedCosts(0.5)
    for _ in range(200):
        budget = policy.plan_all(crowd)[0]
        shared = policy.share(crowd, [draft(budget, [0.2] * 4)])
        lengths.append(len(shared[0]))
        policy.learn_all(crowd, [outcome(len(shared[0]), 0)])
    assert set(lengths[-40:]) == {0, 1} and lengths[-40:].count(1) < 8


def test_the_choice_of_a_place_does_not_depend_on_its_token():
    """Two drafts with the same distributions and other tokens are cut at the same place."""
    cuts = []
    for token in (0, 2):
        policy = AdaptiveVerification(4, uncut=0)
        crowd = trained(policy)
        budget = policy.plan_all(crowd)[0]
        for depth, prob in enumerate([0.9, 0.6, 0.5, 0.4]):
            step = sure(prob, depth)
            budget.stop(type(step)(token, step.probs, depth))
        cuts.append(len(policy.share(crowd, [DraftTree.chain([token] * 4)])[0]))
    assert cuts[0] == cuts[1]


def test_a_state_of_another_run_can_join():
    policy = AdaptiveVerification(3)
    crowd = trained(policy, 2)
    crowd.append(State([0] * 5, costs=FixedCosts()))
    assert len(policy.plan_all(crowd)) == 3
