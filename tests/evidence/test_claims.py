"""The ledger of papers' claims: when a claim is decided, what chance would show, and that page and cards
agree."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from specviz import ASSETS
from specviz.core.claim import BY_DIFFERENCE, QUANTITIES, Claim
from specviz.evidence import claims as ledger
from specviz.evidence.claim_counts import Counts
from specviz.evidence.claims import CANNOT, LOOKS, NOT_SHOWN, OPEN, OPPOSITE, SHOWN, Outcome, Pair
from specviz.methods import catalogue
from specviz.trace.events import Committed, Drafted, Noted, Verified
from specviz.zoo import load

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
CARDS = ASSETS / "claims.json"


def claim(quantity="accepted_length", **how) -> Claim:
    return Claim("It is so.", "speculative", quantity, "x", "y", **how)


def pairs(effect: float, count: int, seed: int = 0, spread: float = 1.0) -> list[Pair]:
    rng = random.Random(seed)
    return [
        Pair("it/1", i, "t", 1, i, 20 + effect + spread * rng.gauss(0, 1), 20.0, "now") for i in range(count)
    ]


def test_every_method_with_a_paper_has_a_claim_and_its_knobs_are_the_methods_own():
    listed = ledger.listed()
    assert set(ledger.COUNTED) == set(QUANTITIES) and set(ledger.WITHOUT_IT) == set(ledger.WITHOUT_WORDS)
    assert {key for key, method in catalogue().items() if not method.claims} == {"autoregressive", "oracle"}
    for method, one in listed.values():
        ours, theirs = method.read_knobs(one.knobs), catalogue()[one.baseline].read_knobs(one.baseline_knobs)
        assert (one.baseline, theirs) != (method.key, ours) and one.text.endswith(".")
        assert bool(one.figure) == bool(one.place) and "memory" not in one.place
        assert ledger.looks(one)[0] == LOOKS[0] and ledger.looks(one, 1)
    assert list(ledger.listed(["sequoia"])) == ["sequoia/1"]


def test_a_changed_condition_leaves_earlier_pairs_out_and_a_changed_wording_does_not(tmp_path):
    one = claim(knobs={"gamma": 3})
    assert ledger.condition_hash(one) == ledger.condition_hash(claim(knobs={"gamma": 3}, why="so"))
    assert ledger.condition_hash(one) != ledger.condition_hash(claim(knobs={"gamma": 4}))
    path, (_, real) = tmp_path / "claims.jsonl", ledger.listed()["sequoia/1"]
    lines = [
        Pair("sequoia/1", 0, "t", 1, 0, 3.0, 2.0, "now", hashed, suite)
        for hashed, suite in ((ledger.condition_hash(real), 0), ("another", 0), ("", 1))
    ]
    path.write_text("".join(json.dumps(line.__dict__) + "\n" for line in lines), encoding="utf-8")
    assert len(ledger.read_ledger(path)["sequoia/1"]) == 1 and ledger.read_ledger(path, suite=1) == {}


def test_prompts_come_from_each_task_in_turn_and_other_suites_share_none():
    first, other = (ledger.prompts((), "", suite) for suite in (0, 1))
    assert [item.task for item in first[:6]] == list(ledger.TASKS) == [item.task for item in other[:6]]
    assert len(first) >= LOOKS[-1] <= len(other)
    assert not {item.prompt for item in first} & {item.prompt for item in other}
    for target in ledger.TARGET_TASKS:
        assert len(ledger.prompts((), target, 0)) == len(ledger.prompts((), target, 1)) == 16


def test_at_temperature_0_no_prompt_is_used_twice():
    few = claim(tasks=("edit", "quote", "cite"))
    assert (
        ledger.looks(few) == [LOOKS[0], 14]
        and ledger.looks(claim(temperature=1.0, tasks=("edit",)))[-1] == 32
    )
    assert ledger.outcome(few, pairs(0.0, 14)).verdict == NOT_SHOWN


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
    truth = effect if quantity in BY_DIFFERENCE else 1 + effect / 20
    assert (found.low <= truth <= found.high) and (found.p < 0.05) == (verdict != NOT_SHOWN)


def test_a_factor_moves_the_value_that_the_method_must_pass():
    some = pairs(-1.0, LOOKS[-1], spread=0.5)
    assert ledger.outcome(claim(), some).verdict == OPPOSITE
    assert ledger.outcome(claim(factor=0.9), some).verdict == SHOWN


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
    moved = [x - low for x in (1.0, 2.0, 3.0, 2.0, 1.5, 2.5, 2.0, 2.0)]
    assert ledger.interval(moved, 0.05)[2] == pytest.approx(0.05, abs=2e-3)


def draft(count: int) -> Drafted:
    return Drafted(0, 0.0, 0.1, tuple({"id": i, "parent": i - 1, "depth": i + 1} for i in range(count)))


def commit(tokens: int) -> Committed:
    return Committed(0, 0.2, tuple(range(tokens - 1)), (7,) * tokens, "bonus", None, None, {}, {})


def rounds(*notes: Noted, one_pass: bool = False) -> Counts:
    counts = Counts(one_pass)
    for _ in range(10):
        for event in (draft(4), Verified(0, 0.1, 0.2, 5), commit(3), *notes):
            counts.take(event)
    return counts


def counted(quantity: str, counts: Counts, of: dict = ledger.COUNTED) -> float:
    return of[quantity](counts, claim(quantity, step=0.1))


def note(kind: str, **data) -> Noted:
    return Noted(0, kind, data)


def test_quantities_are_counted_from_a_runs_events():
    counts = rounds()
    assert counted("accepted_length", counts) == 3 and counted("kept_share", counts) == 0.5
    assert counted("discarded", counts) == pytest.approx(2 / 3)
    assert counted("draft_passes", counts) == pytest.approx(4 / 3)
    assert counted("draft_passes", rounds(one_pass=True)) == pytest.approx(1 / 3)
    assert counted("modelled_time", counts) == pytest.approx(1.4 / 3)
    assert counted("layers_read", counts) == pytest.approx(1 / 3) and counted("texts", counts) == 3


@pytest.mark.parametrize(
    "quantity, event, ours, without",
    [
        ("layers_read", note("layers", count=4, skipped=[2, 3, 4, 5]), (1 + 4 * 0.5) / 3, None),
        ("layers_read", note("layers", count=4, skipped=[4, 5, 6, 7], reused=2), (1 + 2 - 0.5) / 3, None),
        ("layers_read", note("layers", count=4, skipped=[2, 3], at=9), 0.75 / 3, None),
        ("layers_read", note("second_path"), 2 / 3, None),
        ("cache_read", note("own_cache", kept=20, of=100, bits=0), (100 + 80) / 3, 100.0),
        ("cache_read", note("own_cache", kept=100, of=100, bits=4), (100 + 100) / 3, 100.0),
        ("chip_time", note("chip", draft=0.001, verify=0.002, sync=0.0, host=0.006), 1.0, 2.0),
        ("expert_bytes", note("expert_union", line=[1, 2], bytes=6, separately=8), 3.0, 4.0),
        ("draft_layers", note("sizes", used=[0, 1], layers=[2, 4]), 3.0, 4.0),
        ("draft_layers", note("side_by_side", steps=3, layers=8), 3.0, 8.0),
        ("inner_passes", note("staged", rounds=2, sizes=[2, 2]), 0.5, 1.0),
        ("draft_passes", note("staged", rounds=2, sizes=[2, 2]), 2 / 3, None),
        ("draft_passes", note("rounds", paths=[1, 2, 2]), 1.0, None),
        ("draft_passes", note("serial_parallel", passes=3), 1.0, None),
        ("draft_passes", note("diffusion", passes=1), 1 / 3, None),
        ("asked_share", note("combined", asked=[True, False, False, False]), 0.25, None),
        ("texts", note("superposed", drafts=[{"tokens": [1, 2]}] * 3, passes=2), 3.0, None),
        ("modelled_time", note("outcomes", ready=True), 1 / 3, None),
        ("modelled_time", note("timeline", written=30), 3 / 3, None),
        ("batch_rows", note("class", written=[50, 50], rows=[5, 5]), 1.0, None),
        ("parameters_read", note("scale", parameters=3_000_000), 1.0, None),
    ],
)
def test_quantities_of_notes(quantity, event, ours, without):
    counts = rounds(event)
    assert counted(quantity, counts) == pytest.approx(ours)
    if without is not None:
        assert counted(quantity, counts, ledger.WITHOUT_IT) == pytest.approx(without)


def test_padding_is_counted_per_token_of_the_batch():
    counts = rounds(note("class", written=[50, 50], rows=[3, 5]), note("rows", given=[3, 5], padded=10))
    assert counted("padded_rows", counts) == 0.8
    assert counted("padded_rows", counts, ledger.WITHOUT_IT) == 1.0


def test_chance_is_counted_from_the_claims_that_were_tried():
    some = (
        [Outcome(SHOWN)] * 8 + [Outcome(OPPOSITE)] + [Outcome(NOT_SHOWN)] + [Outcome(CANNOT), Outcome(OPEN)]
    )
    rate = ledger.false_discoveries(some)
    assert rate["tried"] == 10 and rate["shown"] == 8
    assert rate["by_chance"] == 0.25 and rate["rate"] == pytest.approx(0.25 / 8)
    read = ledger.false_discoveries([*some, Outcome(OPEN, 6, p=0.3), Outcome(OPEN, 6, p=0.1)])
    assert (read["tried"], read["open"], read["by_chance"]) == (10, 2, pytest.approx(0.3))


class Here:
    name = "here"

    def unsupported_reason(self, method):
        return "It needs a library." if method.key == "rest" else None


def fake(monkeypatch) -> list[tuple[str, int]]:
    ran = []

    def measure(runs, name, method, one, number, suite=0):
        ran.append((name, number))
        ours = 3.0 + number % 2 if QUANTITIES[one.quantity][1] else 1.0 - number % 2
        hashed = ledger.condition_hash(one)
        return Pair(name, number, runs.loaded.name, 1, number, ours, 2.0, "now", hashed, suite)

    monkeypatch.setattr(ledger, "measure", measure)
    return ran


def test_pairs_are_run_in_turns_and_the_ledger_is_continued(tmp_path, monkeypatch):
    ran = fake(monkeypatch)
    path, names = tmp_path / "claims.jsonl", ["sequoia/1", "dyspec/1", "rest/1"]
    here = lambda name: Here()  # noqa: E731
    first = dict(ledger.try_claims(here, "here", path, names, lambda: len(ran) >= 5))
    assert ran == [("dyspec/1", 0), ("sequoia/1", 0), ("dyspec/1", 1), ("sequoia/1", 1), ("dyspec/1", 2)]
    assert first["rest/1"] == Outcome(CANNOT, why="It needs a library.")
    last = dict(ledger.try_claims(here, "here", path, names))
    assert ran.count(("dyspec/1", 2)) == 1 and len(ran) == 2 * LOOKS[0]
    assert last["sequoia/1"].verdict == last["dyspec/1"].verdict == SHOWN
    assert len(path.read_text().splitlines()) == len(ran)
    assert (
        ledger.read_ledger(path, "elsewhere") == {} and len(ledger.read_ledger(path)["dyspec/1"]) == LOOKS[0]
    )


@pytest.fixture(scope="module")
def small():
    return load("Llama-specviz-16M")


def test_claims_of_one_baseline_share_its_runs(small):
    runs = ledger.Runs(small)
    for name in ("jacobi/1", "fastcot/1"):
        method, one = ledger.listed()[name]
        pair = ledger.measure(runs, name, method, one, 3)
        assert pair.number == pair.seed == 3 and pair.baseline == 1.0 <= pair.ours
        json.dumps(pair.__dict__)
    assert len(runs.kept) == 3


def test_both_rules_judge_the_same_drafts_without_changing_the_run(small):
    method, one = ledger.listed()["block_verification/1"]
    runs, ask = ledger.Runs(small), ledger.Asked(one, ledger.prompts((), "", 0)[:1], 0)
    both, alone = (runs.counts(method, one.knobs, ask, both) for both in (True, False))
    assert both.totals.record()["accepted"] == alone.totals.record()["accepted"]
    assert both.sums["trials"] == both.totals.rounds
    assert both.sums["trial_ours"] > both.sums["trial_baseline"] > both.sums["trials"]


def table(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ")][1:]


def test_the_page_holds_every_claim_of_the_cards():
    lines = table(PAGE.read_text(encoding="utf-8"))
    assert len(lines) == len(ledger.listed())
    for line, (method, one) in zip(lines, ledger.listed().values()):
        assert line.startswith(f"| {method.title} | {one.text} |")
        assert ledger.condition(one) in line and ledger.in_paper(one) in line


def test_page_and_cards_say_what_the_ledger_holds():
    cards = json.loads(CARDS.read_text(encoding="utf-8"))
    found = ledger.outcomes(PAGE.with_suffix(".jsonl"), cards["target"])
    text = PAGE.read_text(encoding="utf-8")
    assert set(cards["claims"]) == set(ledger.listed())
    for line, name in zip(table(text), ledger.listed()):
        verdict = cards["claims"][name]["verdict"]
        assert line.split(" | ")[-1].startswith(verdict)
        if name in found:
            assert verdict == found[name].verdict and cards["claims"][name]["pairs"] == found[name].pairs
    rate = ledger.false_discoveries(found.values())
    assert f"{rate['tried']} were tried to the end: {rate['shown']} are shown" in text


def test_the_command_continues_its_ledger_writes_the_page_and_repeats(tmp_path, monkeypatch, capsys):
    from specviz.cli import commands

    fake(monkeypatch)
    monkeypatch.setattr("specviz.zoo.load", lambda *names: Here())
    into, page, cards = (tmp_path / name for name in ("claims.jsonl", "claims.md", "claims.json"))
    argv = ["claims", "--target", "here", "--only", "sequoia,rest", "--into", str(into), "--json"]
    argv += ["--page", str(page), "--cards", str(cards)]
    assert commands.main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sequoia/1"]["verdict"] == SHOWN and found["rest/1"]["verdict"] == CANNOT
    assert len(into.read_text().splitlines()) == found["sequoia/1"]["pairs"] == LOOKS[0]
    assert commands.main(argv) == 0 and len(into.read_text().splitlines()) == LOOKS[0]
    capsys.readouterr()
    assert len(table(page.read_text(encoding="utf-8"))) == len(ledger.listed())
    shown = json.loads(cards.read_text(encoding="utf-8"))["claims"]["sequoia/1"]
    assert shown["verdict"] == SHOWN and shown["show"]["seed"] % 2 == 1
    again = ["claims", "--target", "here", "--into", str(into), "--again", "3"]
    assert commands.main(again) == 0
    assert "1 of 1 verdicts are the same" in capsys.readouterr().out
    assert len(into.read_text().splitlines()) == 2 * LOOKS[0]


def test_the_pair_that_is_shown_has_enough_to_look_at():
    short, long = (
        Pair("it/1", i, "t", 1, i, ours, 1.0, "now", tokens=n) for i, ours, n in [(0, 9, 4), (1, 2, 40)]
    )
    assert ledger.largest(claim(), [short, long]) == long
    assert ledger.largest(claim(), [short]) == short
