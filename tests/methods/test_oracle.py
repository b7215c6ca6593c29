"""The oracle: every draft token is accepted, drafting takes no measured time, and it never counts as a
winner."""

from __future__ import annotations

import pytest

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.drafters.model.oracle import OracleChain
from specviz.evidence.bench_page import figures_by_method, winners_table
from specviz.lab.compare import compare
from specviz.methods import catalogue
from specviz.policies import Fixed
from specviz.run.session import Session
from specviz.ui.cards import cards
from specviz.ui.picker_rows import rows
from specviz.verifiers import TokenRejection

from ..evidence.test_bench_page import bench_session
from ..exactness.toys import toy
from ..run.fakes import FakeLoaded


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
    lanes = [
        {"key": key, "title": key, "runs": [[100, s], [100, s], [100, s]]}
        for key, s in (("autoregressive", 4.0), ("speculative", 2.0), ("oracle", 1.0))
    ]
    found = compare(lanes, "autoregressive")
    assert found["winner"] == "speculative" and [row["of_possible"] for row in found["rows"]] == [
        1.0,
        0.5,
        0.25,
    ]
    assert [row["bound"] for row in found["rows"]] == [True, False, False]
    loaded, bench = (
        FakeLoaded(),
        {key: {"story": [speed] * 4} for key, speed in (("oracle", 3.0), ("speculative", 2.0))},
    )
    started = {
        key: next(Session(loaded, key).run("the cat", 4)).header["method"]
        for key in ("oracle", "speculative")
    }
    assert started["oracle"]["bound"] is True and "bound" not in started["speculative"]
    assert [row["key"] for row in rows(cards(), ()) if row["bound"]] == ["oracle"]
    assert not any(
        "Oracle" in line
        for line in winners_table(figures_by_method([bench_session(0.0, bench)]), catalogue(), ["story"])
    )
    assert all(row["of_possible"] is None for row in compare(lanes[:2], "autoregressive")["rows"])
