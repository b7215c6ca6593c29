"""Lengths decided by a trained network: the rules of SpecDec++ and DISCO on scripted chances, and what the
drafter shows them."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Budget, DraftTree, Sampling, State, Step
from specviz.drafters.model.chain import StateChain
from specviz.policies import Classified, PredictedAcceptance, PredictedLength
from specviz.targets.tiny import TinyNet, TinyTarget

from ..message_codes import refuses

PROBS = torch.tensor([0.7, 0.3])


def drafted(policy, token_probs):
    """How many tokens are drafted when the networks give these chances."""
    notes = State([0])
    budget = policy.plan(notes)
    for depth in range(budget.gamma):
        if budget.stop(Step(0, PROBS, depth, torch.tensor([token_probs[depth]]))):
            return depth + 1
    return budget.gamma


def test_specdecpp_stops_when_a_refusal_has_become_likely():
    """The state of depth d has read token d - 1, so the chances count from depth 1: 0.9, then 0.9 * 0.8 =
    0.72, then 0.648."""
    token_probs = [0.0, 0.9, 0.8, 0.9, 0.1, 0.9]
    policy = PredictedAcceptance(lambda hidden: hidden[0], 0.3, 1, 6)
    assert drafted(policy, token_probs) == 4
    assert policy.line == pytest.approx([0.9, 0.8, 0.9]) and policy.refused == pytest.approx(
        [0.1, 0.28, 0.352]
    )
    assert drafted(policy, token_probs) == 4, "a new round begins anew"
    assert drafted(PredictedAcceptance(lambda hidden: hidden[0], 0.2, 1, 6), token_probs) == 3
    assert drafted(PredictedAcceptance(lambda hidden: hidden[0], 0.2, 5, 6), token_probs) == 5
    assert drafted(PredictedAcceptance(lambda hidden: hidden[0], 0.95, 1, 6), token_probs) == 6


def test_disco_stops_after_the_token_it_doubts():
    """Its chance is of the token just drafted, also of the first."""

    def prob(probs, depth):
        assert probs is PROBS
        return torch.tensor([0.9, 0.6, 0.4, 0.9])[depth]

    assert drafted(Classified(prob, 0.5, 4), [0] * 4) == 3
    assert drafted(Classified(prob, 0.3, 4), [0] * 4) == 4
    assert drafted(Classified(prob, 0.95, 4), [0] * 4) == 1


@pytest.mark.parametrize("reported, length", [(2.4, 2), (2.6, 3), (-3.0, 0), (0.4, 0), (9.7, 6), (None, 6)])
def test_adaeagle_drafts_what_was_predicted(reported, length):
    state = State([0])
    assert PredictedLength(lambda _: reported, 6).plan(state).gamma == length
    note = state.notes[-1][1]
    assert note["gamma"] == length and note.get("predicted") == reported


def test_adaeagle_goes_on_beyond_the_prediction_while_the_draft_is_sure():
    """Both must say so: the prediction is reached, and the token's log-probability is below the limit."""

    def drafted(reported, token_probs):
        budget = PredictedLength(lambda _: reported, 6, -0.6).plan(State([0]))
        assert budget.gamma == 6
        return next(
            (d + 1 for d, p in enumerate(token_probs) if budget.stop(Step(0, torch.tensor([p, 1 - p]), d))), 6
        )

    assert drafted(3.0, [0.1, 0.1, 0.1, 0.9, 0.9, 0.9]) == 3
    assert drafted(3.0, [0.9, 0.9, 0.56, 0.54, 0.9, 0.9]) == 4, "e to the -0.6 is 0.549"
    assert drafted(0.0, [0.1] * 6) == 1 and drafted(2.0, [0.9] * 6) == 6


def test_the_policy_sees_the_draft_models_state_that_each_token_was_drawn_from():
    net = TinyNet(7, seed=1)
    model, seen = TinyTarget(net), []
    chain = StateChain(model, net.width)
    for start in ([1, 2, 3], [1, 2, 3, 4], [1, 2, 5]):  # also where the cache is rewound
        seen.clear()
        tree = chain.propose(
            State(start, Sampling(0.0), limit=9), Budget(4, stop=lambda step: seen.append(step))
        )
        assert len(seen) == 4
        for depth, step in enumerate(seen):
            fresh = TinyTarget(net)
            fresh.capture(frozenset({"final"}))
            fresh.sync([*start, *tree.tokens[:depth]])
            state = fresh.score(DraftTree()).hidden_states["final"][0]
            assert torch.allclose(step.hidden, state, atol=1e-10)
    with refuses(ValueError, "draft_length.hidden_size", "9", "8"):
        StateChain(model, 9)
