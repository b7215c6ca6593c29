"""Acceptance along an answer."""

from __future__ import annotations

import pytest

from specviz.run import Session, collect
from specviz.trace.answer_places import MOST, STRETCH, add_round, added, place_figures
from specviz.trace.metrics import Totals
from specviz.trace.recorder import Recorder
from specviz.trace.schema import TOTALS

from ..run.fakes import FakeLoaded

METHODS = ("autoregressive", "speculative", "draft_tree", "jacobi")


@pytest.mark.parametrize("method", METHODS)
def test_the_stretches_add_up_to_the_totals(method):
    result = collect(Session(FakeLoaded(context=512), method).run("the cat sat on the mat", 150))
    totals = result.totals
    passes, tokens, tried, accepted = map(sum, zip(*totals.by_place))
    assert (passes, tokens, tried, accepted) == (
        totals.rounds,
        totals.tokens,
        totals.tried,
        totals.accepted,
    )
    assert len(totals.by_place) == 3 and [row["from"] for row in result.record()["along_the_answer"]] == [
        0,
        64,
        128,
    ]
    if method == "autoregressive":
        assert totals.by_place == [[64, 64, 0, 0], [64, 64, 0, 0], [22, 22, 0, 0]]
    TOTALS(totals.record(), "totals")


def test_a_round_counts_where_it_begins_and_late_tokens_share_a_row():
    places = []
    add_round(places, STRETCH - 1, (1, 5, 4, 4))
    assert places == [[1, 5, 4, 4]]
    add_round(places, STRETCH, (1, 2, 4, 1))
    for at in (STRETCH * MOST, STRETCH * (MOST + 9)):
        add_round(places, at, (1, 1, 0, 0))
    assert len(places) == MOST + 1 and places[-1] == [2, 2, 0, 0] and places[2] == [0, 0, 0, 0]
    figures = place_figures(places)
    assert (figures[1]["mean_accepted_length"], figures[1]["acceptance_rate"]) == (2.0, 0.25)
    assert figures[2] == {
        "from": 2 * STRETCH,
        "passes": 0,
        "mean_accepted_length": None,
        "acceptance_rate": None,
    }


def test_answers_of_different_lengths_are_added():
    one, other = [[1, 2, 3, 1]], [[1, 1, 1, 0], [2, 2, 2, 2]]
    assert added(one, other) == [[2, 3, 4, 1], [2, 2, 2, 2]] == added(other, one)
    assert (Totals(by_place=one) + Totals(by_place=other)).by_place == added(one, other)


def test_the_recorded_totals_hold_them():
    loaded = FakeLoaded()
    recorder = Recorder(0, loaded.token_bytes)
    records = [r for e in Session(loaded, "speculative").run("the cat", 12) for r in recorder.take(e)]
    (row,) = records[-1]["totals"]["by_place"]
    assert row[1] == 12
