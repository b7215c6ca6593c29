"""The ledger of papers' claims: when a claim is decided, what chance would show, and that page and cards
agree."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from specviz.core.claim import QUANTITIES, Claim
from specviz.evidence import claims as ledger
from specviz.evidence.claims import CANNOT, LOOKS, NOT_SHOWN, OPEN, OPPOSITE, SHOWN, Outcome, Pair
from specviz.methods import catalogue
from specviz.trace.metrics import Totals
from specviz.zoo import load

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"


def claim(quantity="accepted_length", **how) -> Claim:
    return Claim("It is so.", "speculative", quantity, "x", "y", **how)


def pairs(effect: float, count: int, seed: int = 0, spread: float = 1.0) -> list[Pair]:
    rng = random.Random(seed)
    return [
        Pair("it/1", i, "t", 1, i, 2 + effect + spread * rng.gauss(0, 1), 2.0, "now") for i in range(count)
    ]


def test_every_claim_of_a_card_can_be_read_and_its_knobs_are_the_methods_own():
    listed = ledger.listed()
    assert len(listed) >= 12 and set(ledger.COUNTED) == set(QUANTITIES)
    for method, one in listed.values():
        method.read_knobs(one.knobs)
        catalogue()[one.baseline].read_knobs(one.baseline_knobs)
        assert one.baseline != method.key and one.text.endswith(".") and one.figure and one.place
    assert list(ledger.listed(["sequoia"])) == ["sequoia/1"]


@pytest.mark.parametrize(
    "quantity, effect, verdict",
    [
        ("accepted_length", 3.0, SHOWN),
        ("accepted_length", -3.0, OPPOSITE),
        ("discarded", -3.0, SHOWN),
        ("discarded", 3.0, OPPOSITE),
        ("accepted_length", 0.0, NOT_SHOWN),
    ],
)
def test_a_claim_is_decided_by_its_interval_and_direction(quantity, effect, verdict):
    found = ledger.outcome(claim(quantity), pairs(effect, LOOKS[-1]))
    assert found.verdict == verdict
    assert (found.low <= effect <= found.high) and (found.p < 0.05) == (verdict != NOT_SHOWN)


def test_too_few_pairs_leave_a_claim_open_and_equal_pairs_show_nothing():
    assert ledger.outcome(claim(), pairs(3.0, LOOKS[0] - 1)) == Outcome(OPEN, LOOKS[0] - 1)
    assert ledger.outcome(claim(), pairs(0.0, LOOKS[0], spread=0.0)).verdict == OPEN
    assert ledger.outcome(claim(), pairs(0.0, LOOKS[-1], spread=0.0)).verdict == NOT_SHOWN


def test_a_claim_without_effect_is_decided_as_seldom_as_stated():
    runs = 400
    decided = sum(
        ledger.outcome(claim(), pairs(0.0, LOOKS[-1], seed)).verdict != NOT_SHOWN for seed in range(runs)
    )
    assert decided / runs < ledger.LEVEL + 4 * (ledger.LEVEL / runs) ** 0.5 and decided > 0


def test_quantiles_of_t_are_the_known_ones():
    known = {(7, 0.975): 2.365, (7, 0.995): 3.499, (15, 0.95): 1.753, (31, 0.99): 2.453}
    for (freedom, share), value in known.items():
        assert ledger.t_quantile(share, freedom) == pytest.approx(value, abs=0.005)
    low, high, p = ledger.interval([1.0, 2.0, 3.0, 2.0, 1.5, 2.5, 2.0, 2.0], 0.05)
    assert low < 2 < high and p < 1e-4
    assert ledger.interval([x - low for x in (1.0, 2.0, 3.0, 2.0, 1.5, 2.5, 2.0, 2.0)], 0.05)[
        2
    ] == pytest.approx(0.05, abs=2e-3)


def test_quantities_are_counted_from_a_runs_totals():
    totals = Totals(tokens=30, rounds=10, drafted=40, accepted=20)
    values = {name: count(totals, {"share": 0.5}) for name, count in ledger.COUNTED.items()}
    assert values == {
        "accepted_length": 3.0,
        "kept_share": 0.5,
        "discarded": pytest.approx(2 / 3),
        "layers_read": 1.0,
    }


def test_chance_is_counted_from_the_claims_that_were_tried():
    some = (
        [Outcome(SHOWN)] * 8 + [Outcome(OPPOSITE)] + [Outcome(NOT_SHOWN)] + [Outcome(CANNOT), Outcome(OPEN)]
    )
    rate = ledger.false_discoveries(some)
    assert rate["tried"] == 10 and rate["shown"] == 8
    assert rate["by_chance"] == 0.25 and rate["rate"] == pytest.approx(0.25 / 8)


class Here:
    name = "here"

    def unsupported_reason(self, method):
        return "It needs a library." if method.key == "rest" else None


def test_pairs_are_run_in_turns_and_the_ledger_is_continued(tmp_path, monkeypatch):
    ran = []

    def measure(loaded, name, method, one, number):
        ran.append((name, number))
        return Pair(name, number, loaded.name, 1, number, 3.0 + number % 2, 2.0, "now")

    monkeypatch.setattr(ledger, "measure", measure)
    path, only = tmp_path / "claims.jsonl", ["sequoia", "dyspec", "rest"]
    first = dict(ledger.try_claims(Here(), path, only, lambda: len(ran) >= 5))
    assert ran == [("dyspec/1", 0), ("sequoia/1", 0), ("dyspec/1", 1), ("sequoia/1", 1), ("dyspec/1", 2)]
    assert first["rest/1"] == Outcome(CANNOT, why="It needs a library.")
    last = dict(ledger.try_claims(Here(), path, only))
    assert ran.count(("dyspec/1", 2)) == 1 and len(ran) == 2 * LOOKS[0]
    assert last["sequoia/1"].verdict == last["dyspec/1"].verdict == SHOWN
    assert len(path.read_text().splitlines()) == len(ran)
    assert ledger.read_ledger(path, "elsewhere") == {} and len(ledger.read_ledger(path)["dyspec/1"]) == 8


def test_a_pair_is_two_runs_on_one_prompt(at_home):
    method, one = ledger.listed()["block_verification/1"]
    pair = ledger.measure(load(), "block_verification/1", method, one, 3)
    assert pair.number == pair.seed == 3 and pair.ours >= 1 <= pair.baseline
    json.dumps(pair.__dict__)


def test_the_page_holds_every_claim_of_the_cards():
    text = PAGE.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(lines) == len(ledger.listed())
    for line, (method, one) in zip(lines, ledger.listed().values()):
        assert line.startswith(f"| {method.title} | {one.text} |") and ledger.condition(one) in line


def test_the_command_continues_its_ledger_and_writes_the_page(tmp_path, monkeypatch, capsys):
    from specviz.cli import commands

    monkeypatch.setattr("specviz.zoo.load", lambda *names: Here())
    monkeypatch.setattr(
        ledger,
        "measure",
        lambda loaded, name, method, one, number: Pair(
            name, number, "here", 1, number, 3.0 + number % 2, 2.0, "now"
        ),
    )
    into, page = tmp_path / "claims.jsonl", tmp_path / "claims.md"
    argv = ["claims", "--only", "sequoia,rest", "--into", str(into), "--page", str(page), "--json"]
    assert commands.main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sequoia/1"]["verdict"] == SHOWN and found["rest/1"]["verdict"] == CANNOT
    assert len(into.read_text().splitlines()) == found["sequoia/1"]["pairs"] == LOOKS[0]
    assert commands.main(argv) == 0 and len(into.read_text().splitlines()) == LOOKS[0]
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(ledger.listed())
