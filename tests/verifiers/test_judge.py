"""A judge that forgives, and rewards that keep steps: what they let pass, that they say so, and where they
are exact."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, RandomStreams, Sampling, Scores, State
from specviz.verifiers import JudgeDecoding, TokenRejection
from specviz.verifiers.step_grade import RewardGrade

from ..methods.toys import distance, probs_of

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
Q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


def scores(rows, token_probs):
    """Scores of given distributions; the state of row i + 1 holds the judge's score of token i."""
    states = torch.tensor([[0.0], *([prob] for prob in token_probs)])
    return Scores(rows.log(), {"final": states})


def judge(states):
    return states[:, 0]


def test_a_refused_token_stands_where_the_judge_finds_it_good():
    """At temperature 0: right, wrong and forgiven, wrong and bad."""
    tree, rows = DraftTree.chain([0, 2, 1, 0]), scores(P.repeat(5, 1), [0.1, 0.9, 0.2, 0.9])
    state = State([0], Sampling(), RandomStreams(0))
    verdict = JudgeDecoding(judge, 0.5).verify(tree, rows, state)
    assert verdict.path == (0, 1) and verdict.token == 0 and verdict.kind == "correction"
    assert [trial.rule for trial in verdict.decisions] == ["match", "judge", "match"]
    notes = dict(state.notes)
    assert notes["judge"] == {"chances": [0.1, 0.9, 0.2], "least": 0.5, "forgiven": [1], "nodes": [0, 1, 2]}
    assert notes["drift"]["nats"] == pytest.approx([float((P[0] / P[2]).log())], abs=1e-6)


@pytest.mark.parametrize(
    "tree", [DraftTree.chain([2, 1], torch.stack([Q, Q])), DraftTree((2, 1, 0), (-1, -1, 0), (-1, -1, -1))]
)
def test_at_a_limit_of_one_it_is_the_fair_test(tree):
    rows = scores(P.repeat(len(tree) + 1, 1), [0.99] * len(tree))

    def probs(rule):
        return probs_of(
            lambda rng: (lambda v: (*(tree.tokens[i] for i in v.path), v.token))(
                rule.verify(tree, rows, State([0], Sampling(1.0), rng))
            )
        )

    assert distance(probs(JudgeDecoding(judge, 1.0)), probs(TokenRejection())) < 1e-12
    assert distance(probs(JudgeDecoding(judge, 0.5)), probs(TokenRejection())) > 0.05, (
        "a judge that likes everything changes the law"
    )


@pytest.mark.parametrize("coin, reward, kept", [(False, 0.8, 1.0), (False, 0.6, 0.0), (True, 0.6, 0.6)])
def test_a_step_is_kept_by_its_reward(coin, reward, kept):
    """The reward is of the states that have read the step, not of the root's."""
    tree, rows = DraftTree.chain([2, 1]), scores(P.repeat(3, 1), [reward, reward])
    rule = RewardGrade(lambda states: states.mean() if len(states) == 2 else torch.tensor(9.0), 0.7, coin)
    probs = probs_of(lambda rng: rule.verify(tree, rows, State([0], Sampling(1.0), rng)).kind)
    assert probs.get("accepted", 0.0) == pytest.approx(kept, abs=1e-6)
    state = State([0], Sampling(), RandomStreams(0))
    rule.verify(tree, rows, state)
    assert dict(state.notes)["grade"]["grade"] == pytest.approx(reward, abs=1e-4)
