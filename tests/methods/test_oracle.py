"""The oracle: every draft token is accepted, drafting takes no measured time, and it never counts as a
winner."""

from __future__ import annotations

import pytest

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.core.errors import InvalidUse
from specviz.drafters.model.oracle import OracleChain
from specviz.drafters.model.synthetic_acceptance import rates_of_length, read_rates
from specviz.engine.cards import cards
from specviz.evidence.bench_page import figures_by_method, winners_table
from specviz.lab.compare import compare
from specviz.methods import catalogue
from specviz.policies import Fixed
from specviz.run.session import Session
from specviz.trace.speed import LaneTimes, RunTime
from specviz.ui.picker_rows import rows
from specviz.verifiers import TokenRejection

from ..evidence.test_bench_page import bench_session
from ..exactness.toys import greedy, toy
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
        {"key": key, "title": key, "times": LaneTimes((), (RunTime(100, s),) * 3)}
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


RATES = "[0.8, 60%, 0.3]"


def shares(knobs, rounds, sampling):
    """Of many rounds: the share of drafts accepted up to each place, and tokens a round."""
    kit = toy(12, share=0.2, sharp=3.0, context=4096)
    method = catalogue()["oracle"]
    kit.open = lambda role: kit.open_net(kit.net)
    parts = method.build(kit, **method.read_knobs(knobs))
    state, paths = State([1, 2, 0, 3], sampling), []
    open_run(parts, kit.target, state)
    for _ in range(rounds):
        if len(state.tokens) > 60:  # the tiny target slows down with the text
            state.tokens[4:] = []
            kit.target.sync(state.tokens)
        paths.append(len(play(parts, kit.target, state).verdict.path))
    longest = len(parts.drafter.accept)
    return [sum(n > i for n in paths) / rounds for i in range(longest)], 1 + sum(paths) / rounds


@pytest.mark.parametrize("temperature", [0.0, pytest.param(1.0, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "knobs, want, length",
    [
        ({"acceptance": 0.8, "gamma": 3}, [0.8, 0.64, 0.512], 2.952),
        pytest.param(
            {"by": "rates", "rates": RATES, "gamma": 9}, [0.8, 0.6, 0.3], 2.7, marks=pytest.mark.thorough
        ),
        ({"by": "mean length", "length": 2.5, "gamma": 3}, None, 2.5),
    ],
    ids=["dial", "rates", "mean length"],
)
def test_the_set_acceptance_is_the_measured_one(knobs, want, length, temperature):
    """Within three standard errors of 900 rounds; at temperature 1 a wrong token of this small vocabulary
    is accepted now and then by the rule, so top-k leaves it no probability."""
    found, mean = shares(knobs, 900, Sampling(temperature, top_k=8 if temperature else 0, seed=5))
    assert all(abs(a - b) < 0.05 for a, b in zip(found, want or found))
    assert mean == pytest.approx(length, abs=0.12)


def test_wrong_tokens_leave_the_text_as_it_is():
    kit = toy(12, share=0.2, sharp=3.0)
    want = greedy(kit.net.logits, [1, 2, 0, 3], 30)
    for accept in ((0.0, 0.0, 0.0), (0.5,), (0.9, 0.2, 1.0)):
        parts = Parts(OracleChain(kit.open_net(kit.net), accept), Fixed(3), TokenRejection())
        state, kinds = State([1, 2, 0, 3], Sampling(0.0, seed=1), limit=30), set()
        open_run(parts, kit.target, state)
        while not state.done:
            kinds.add(play(parts, kit.target, state).verdict.kind)
        assert state.tokens == want and "correction" in kinds


@pytest.mark.parametrize(
    "text, code",
    [
        ("", "rates.numbers"),
        ("0.5, 0.6", "rates.order"),
        ("0.5, x", "rates.numbers"),
        ("1.2", "rates.numbers"),
        ("nan", "rates.numbers"),
        (" ".join(["0"] * 17), "rates.numbers"),
    ],
)
def test_rates_that_no_server_reports_are_refused(text, code):
    with pytest.raises(InvalidUse) as error:
        catalogue()["oracle"].read_knobs({"rates": text})
    assert error.value.code == code


def test_rates_after_a_place_that_is_never_accepted_are_zero():
    assert read_rates("0.5 0 0") == (0.5, 0.0, 0.0)
    assert (
        rates_of_length(1.0, 3) == pytest.approx((0.0,) * 3, abs=1e-9) and rates_of_length(9, 3) == (1.0,) * 3
    )
