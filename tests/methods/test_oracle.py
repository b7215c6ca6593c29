"""The oracle: every draft token is accepted, drafting takes no measured time, and it never counts as a winner."""
from __future__ import annotations

import pytest

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.drafters.model.oracle import OracleChain
from specviz.lab.compare import compare
from specviz.methods import catalogue
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection

from ..exactness.toys import toy


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_draft_token_is_accepted_and_drafting_is_not_timed(temperature):
    kit = toy(12, share=0.2)
    parts = Parts(OracleChain(kit.open_net(kit.net)), Fixed(3), TokenRejection())
    state = State([1, 2, 0, 3], Sampling(temperature), limit=20)
    open_run(parts, kit.target, state)
    while not state.done:
        outcome = play(parts, kit.target, state)
        assert outcome.verdict.kind != "correction" and outcome.seconds["draft"] < 0.01
        assert len(outcome.verdict.path) == len(outcome.tree) or outcome.verdict.kind == "accepted"
    assert state.round == 5


def test_it_is_a_bound_and_never_a_winner():
    assert [key for key, method in catalogue().items() if method.bound] == ["oracle"]
    lanes = [{"key": key, "title": key, "runs": [[100, s], [100, s], [100, s]]} for key, s in
             (("autoregressive", 4.0), ("speculative", 2.0), ("oracle", 1.0))]
    found = compare(lanes, "autoregressive")
    assert found["winner"] == "speculative" and [row["of_possible"] for row in found["rows"]] == [1.0, 0.5, 0.25]
    assert [row["bound"] for row in found["rows"]] == [True, False, False]
    assert all(row["of_possible"] is None for row in compare(lanes[:2], "autoregressive")["rows"])
