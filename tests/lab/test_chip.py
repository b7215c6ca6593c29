"""The modelled chip: sums by hand, refusals of every number that is none, the same answer over HTTP."""

from __future__ import annotations

import math

import pytest

from specviz.core.chip_model import Chip, Model, round_cost, tokens_per_round, transformer_size
from specviz.lab import LabError, answer
from specviz.lab.chip import LONGEST, NUMBERS

CURVE = {"rows": [1, 3, 5], "seconds": [0.02, 0.024, 0.03], "draft_seconds": 0.002}


def ask(**numbers):
    return next(answer("chip_model", numbers))


def test_a_round_is_its_bytes_or_its_sums():
    chip = Chip(bandwidth=10, arithmetic=100, sram_bandwidth=20, dram=3, sram=2, operation=1, sync=7)
    target, draft = Model(50, 100), Model(5, 10)
    ours, host = round_cost(chip, target, draft, 3), round_cost(chip.host_variant, target, draft, 3)
    assert (ours.draft, ours.verify, ours.sync) == (3 * 0.5, 10, 0)  # bytes over bandwidth
    assert (host.draft, host.verify, host.sync) == (3 * 1.0, 10, 7)
    assert round_cost(chip, target, draft, 15).verify == 16  # sums take over: 2 * 50 * 16 / 100
    assert ours.joules == 3 * (10 * 2 + 10) + 100 * 3 + 100 * 4 and host.joules - ours.joules == 3 * 10
    assert (
        round_cost(chip.host_variant, target, draft, 0).seconds == 10
    )  # a plain pass synchronises nothing here
    assert transformer_size(2, 3, 5, 2.0) == Model(12 * 2 * 9 + 15, 2 * (12 * 2 * 9 + 15))


def test_speed_and_energy_over_the_draft_length():
    found = ask(longest=4, acceptance=0.5, sync=100, measured=CURVE)
    assert (
        found["lengths"] == [0, 1, 2, 3, 4]
        and found["plain"]["tokens_per_second"] == found["designs"]["on_chip"]["tokens_per_second"][0]
    )
    for n in found["lengths"]:
        for design in found["designs"].values():
            assert design["tokens_per_second"][n] == pytest.approx(
                tokens_per_round(0.5, n) / design["seconds"][n]
            )
    host, chip = (found["designs"][name] for name in ("host", "on_chip"))
    assert all(a < b for a, b in zip(host["tokens_per_second"][1:], chip["tokens_per_second"][1:]))
    assert all(a > b for a, b in zip(host["joules_per_token"][1:], chip["joules_per_token"][1:]))
    assert found["measured"]["tokens_per_second"] == pytest.approx(
        [50, 1.5 / 0.024, 1.75 / 0.028, 1.875 / 0.033, 1.9375 / 0.038]
    )
    assert ask(longest=6, measured=CURVE)["measured"]["tokens_per_second"][5:] == [
        None,
        None,
    ]  # beyond what was measured
    assert ask()["measured"] is None and len(ask()["lengths"]) == 17


@pytest.mark.parametrize("name", NUMBERS)
def test_bounds_are_answered_and_what_lies_beyond_is_refused(name):
    _, low, high, _ = NUMBERS[name]
    for value in (low, high):
        flat = [
            x for design in ask(**{name: value})["designs"].values() for line in design.values() for x in line
        ]
        assert all(map(math.isfinite, flat)) and min(flat) >= 0
    for value in (math.nan, math.inf, -math.inf, low - 1, high * 2, "1", True, None, [1], {}):
        with pytest.raises(LabError) as refused:
            ask(**{name: value})
        assert refused.value.code == "lab.chip_number"


@pytest.mark.parametrize(
    "given, code",
    [
        ({"longest": 0}, "number"),
        ({"longest": LONGEST + 1}, "number"),
        ({"longest": 2.5}, "number"),
        ({"longest": math.nan}, "number"),
        ({"speed": 1}, "field"),
        ({"measured": []}, "curve"),
        ({"measured": {"rows": [1], "seconds": [1]}}, "curve"),
        ({"measured": CURVE | {"rows": [1, 5, 3]}}, "curve"),
        ({"measured": CURVE | {"rows": [2, 3, 4]}}, "curve"),
        ({"measured": CURVE | {"seconds": [1, 2]}}, "curve"),
        ({"measured": CURVE | {"seconds": [1, math.nan, 2]}}, "number"),
        ({"measured": CURVE | {"draft_seconds": -1}}, "number"),
        ({"measured": {"rows": list(range(1, 99)), "seconds": [1] * 98}}, "curve"),
    ],
)
def test_a_malformed_question_is_refused(given, code):
    with pytest.raises(LabError) as refused:
        ask(**given)
    assert refused.value.code == f"lab.chip_{code}"
