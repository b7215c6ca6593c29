"""FLy: which refusals are forgiven, and that it is the fair test where none are."""

from __future__ import annotations

import math

import pytest
import torch

from specviz.core import DraftTree, RandomStreams, Sampling, Scores, State
from specviz.verifiers import TokenRejection
from specviz.verifiers.deferred import DeferredAcceptance, top_entropy

from ..methods.toys import distance, round_probs, table, target_probs

UNSURE = [1.0, 0.9, 0.8, -9.0]  # the best token is 0
SURE = [9.0, 0.0, 0.0, -9.0]


def judged(drafted, rows, unsure=0.5, window=2, temperature=0.0):
    state = State([0], Sampling(temperature), RandomStreams(1))
    return DeferredAcceptance(unsure, window).verify(
        DraftTree.chain(drafted), Scores(torch.tensor(rows)), state
    ), state


def test_an_isolated_refusal_of_an_unsure_target_is_forgiven():
    verdict, state = judged([1, 0, 0], [UNSURE, SURE, SURE, SURE])
    assert verdict.path == (0, 1, 2) and verdict.kind == "bonus"
    assert [t.rule for t in verdict.decisions] == ["deferred", "match", "match"]
    assert state.notes == [("drift", {"nats": [pytest.approx(0.1)]})]


@pytest.mark.parametrize(
    "drafted, rows, why",
    [
        ([1, 0, 0], [SURE, SURE, SURE, SURE], "the target was sure"),
        ([1, 1, 0], [UNSURE, SURE, SURE, SURE], "the token behind it is wrong, too"),
        (
            [1, 0, 0],
            [[1.0, 0.9, 0.8, *[0.7] * 97], SURE + [-9.0] * 96, SURE + [-9.0] * 96, SURE + [-9.0] * 96],
            "it wavers between more than a few",
        ),
        ([1, 0], [UNSURE, SURE, SURE], "there is only one token behind it"),
        ([1, 0, 0], [[1.0, -math.inf, 0.9, 0.8], SURE, SURE, SURE], "the target cannot write it"),
    ],
)
def test_every_other_refusal_stands(drafted, rows, why):
    verdict, state = judged(drafted, rows)
    assert verdict.path == () and verdict.token == 0 and verdict.kind == "correction" and not state.notes, why
    assert [t.verdict for t in verdict.decisions] == ["rejected"] + ["skipped"] * (len(drafted) - 1)


def test_doubt_is_what_the_three_best_add_to_the_entropy():
    """As the authors' program has it: where a hundred tokens are alike, three of them say little."""
    assert top_entropy(torch.tensor([2.0, 2.0, 2.0, -50.0, -50.0])) == pytest.approx(math.log(3))
    assert top_entropy(torch.zeros(100)) == pytest.approx(0.03 * math.log(100)) and top_entropy(
        torch.zeros(2)
    ) == pytest.approx(math.log(2))
    assert top_entropy(torch.tensor([50.0, 0.0, 0.0])) < 1e-9


def test_beyond_the_largest_doubt_and_without_a_window_it_is_the_fair_test():
    target, draft = table(3, 1), table(3, 2)

    def propose(state):
        tokens, distributions = [], []
        for _ in range(2):
            distributions.append(draft(tokens))
            tokens.append(state.rng.pick("draft", distributions[-1]))
        return DraftTree.chain(tokens, torch.stack(distributions))

    fair = target_probs(target, 3, 3)
    for rule in (DeferredAcceptance(1.2, 1), DeferredAcceptance(0.0, 0), TokenRejection()):
        assert distance(round_probs(propose, rule, target, 3)[0], fair) < 1e-12
    assert distance(round_probs(propose, DeferredAcceptance(0.0, 1), target, 3)[0], fair) > 0.01
