"""What long texts cost: the line through measured passes, the speed-up reckoned from it, and the question
asked of a tiny pair."""

from __future__ import annotations

import json

import pytest

from specviz import lab
from specviz.cli import commands as cli
from specviz.lab.context_costs import BEYOND, LEAN, LinearFit, MeasuredRun, predicted_speedup
from specviz.methods import catalogue
from specviz.trace.metrics import Totals
from specviz.zoo import load

LINES = {count: LinearFit(1.0 + 0.1 * (count - 1), 1e-3) for count in range(1, 9)}


def test_the_line_is_the_nearest_one_that_does_not_fall():
    assert LinearFit.fit([100, 200, 400], [1.1, 1.2, 1.4]) == LinearFit(
        pytest.approx(1.0), pytest.approx(1e-3)
    )
    assert (
        LinearFit.fit([100, 200], [1.2, 1.0]) == LinearFit(pytest.approx(1.1), 0.0)
        and LinearFit.fit([64], [0.5])(10**6) == 0.5
    )


def speed(key, n, tokens=3.0, drafted=3, inner=0, step=0.0, full=32):
    method = catalogue()[key]
    knobs = method.read_knobs(LEAN[key][0])
    return predicted_speedup(
        n,
        key,
        knobs,
        MeasuredRun(Totals(tokens=int(10 * tokens), rounds=10, drafted=10 * drafted), 10 * inner),
        LINES,
        step,
        full,
    )


def test_a_draft_over_less_of_the_text_pays_where_the_text_costs_more_than_the_weights():
    """By hand: three drafted tokens over 516 of n tokens, a check of four rows, three tokens a round."""
    assert speed("magicdec", 2048) == pytest.approx(3 * 3.048 / (3 * 1.516 + 3.348))
    assert speed("magicdec", 256) < 1 < speed("magicdec", 2**17) < 3, "never more than its tokens a round"
    assert speed("magicdec", 2**40) == pytest.approx(3.0, rel=1e-3)
    assert speed("quantspec", 2**40) == pytest.approx(3 / (3 * 4 / 32 + 1), rel=1e-3), (
        "a rounded text still has to be read"
    )
    assert speed("quantspec", 2**40, full=16) == pytest.approx(3 / (3 * 4 / 16 + 1), rel=1e-3)
    plain = (
        3 * 3.048 / (2 * (1.2 + 0.528 + 2 * 0.3) + 1.5 + 2.048)
    )  # two rounds of two drafted tokens, the check of six rows
    assert speed("triforce", 2048, inner=2, step=0.3) == pytest.approx(plain)


def test_it_is_measured_as_far_as_the_target_reads_and_reckoned_beyond(at_home, capsys):
    parts = list(lab.answer("context_costs", {}, load(), bool))
    json.dumps(parts, allow_nan=False)
    last = parts[-1]
    assert (
        last["lengths"] == [64, 192]
        and last["longest"] == 192
        and min(last["seconds"]) > 0
        and last["token"] >= 0
    )
    assert [m["method"] for m in last["methods"]] == list(LEAN) and last["extrapolated"] == list(BEYOND)
    assert all(
        1 <= m["tokens"] <= 6
        and m["measured"] > 0
        and len(m["extrapolated"]) == len(BEYOND)
        and min(m["extrapolated"]) > 0
        for m in last["methods"]
    )
    assert [len(p["methods"]) for p in parts] == [0, 0, 1, 2, 3]
    assert len(list(lab.answer("context_costs", {}, load(), lambda: True))) == 1
    assert cli.main(["contexts"]) == 0
    said = capsys.readouterr().out
    assert "131072  extrapolated" in said and "192  measured" in said and "quantspec" in said


def test_what_cannot_draft_so_is_left_out(at_home):
    last = list(lab.answer("context_costs", {}, load(draft="none"), bool))[-1]
    assert [m["method"] for m in last["methods"]] == ["magicdec", "quantspec"]
