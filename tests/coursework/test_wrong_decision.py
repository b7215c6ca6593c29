"""The first wrong decision of a submission that failed, as a trace that the viewer opens."""

from __future__ import annotations

from collections import Counter

import pytest

from specviz.cli import main
from specviz.coursework import catalogue, lookup
from specviz.coursework import verification as v
from specviz.coursework import wrong_decision as w
from specviz.coursework.exercise import Check, Report
from specviz.coursework.submission import TrustedCode
from specviz.trace.files import Trace, check

from . import submissions as s

RULES = {"token_rejection": v.TOKEN, "sibling_residual": v.SIBLINGS, "block_verification": v.BLOCK}


def failed(name: str) -> Report:
    return Report("x", "ada", [Check(name, False, "", "")])


@pytest.mark.parametrize("key", RULES)
def test_a_wrong_rule_has_a_round_in_two_lanes(key):
    rule = RULES[key]
    found = v.first_wrong(rule, TrustedCode(rule.known[0].source), 1, failed("decisions"))
    assert found is not None
    check(found.records)
    trace = Trace(found.records)
    assert trace.lanes == [0, 1] and found.place.endswith("round=0")
    tails = [trace.of("commit", lane)[0] for lane in (0, 1)]
    assert (tails[0]["path"], tails[0]["tail"]["tok"]) != (tails[1]["path"], tails[1]["tail"]["tok"])
    drafts = [[node["tok"] for node in trace.of("draft", lane)[0]["nodes"]] for lane in (0, 1)]
    assert drafts[0] == drafts[1]


def test_the_right_rule_has_no_wrong_round():
    code, rule = TrustedCode(s.TOKEN["solution"]), v.TOKEN
    seeds = iter(range(10**6))
    assert (
        w.first_wrong_round(
            rule.outcomes()[0], lambda index, _: rule.call(code, rule.rounds()[index], next(seeds))
        )
        is None
    )


def test_the_outcome_that_differs_most_is_found():
    right = {"a": 0.5, "b": 0.4, "c": 0.1}
    frequent, rare, score = w.differs_most(right, Counter(a=100, b=100, d=1))
    assert (frequent, rare) == ("b", "c") or frequent == "d"
    assert score > 2 and w.differs_most(right, Counter(a=50, b=40, c=10))[2] < 0.1


def test_a_greedy_text_that_differs_opens_at_its_round():
    source = s.TOKEN["solution"].replace("return len(draft), rng.pick(p[len(draft)])", "return len(draft), 3")
    found = v.first_wrong(v.TOKEN, TrustedCode(source), 1, failed("greedy text"))
    assert found is not None
    check(found.records)
    number = w.differing_round(found.records)
    assert number is not None and found.place.endswith(f"round={number}")


def test_a_wrong_draft_is_shown_with_its_text():
    code, report = TrustedCode(lookup.MISTAKES[0].source), Report("prompt_lookup", "ada")
    report.checks.append(lookup.drafts_check(code, report))
    found = lookup.first_wrong(code, "ada", report)
    assert found is not None
    check(found.records)
    assert Trace(found.records).header(0)["prompt"]["ids"] == list(report.checks[0].figures["text"])


@pytest.mark.thorough
def test_the_command_writes_the_page(tmp_path, capsys):
    file, page = tmp_path / "token_rejection.py", tmp_path / "wrong.html"
    file.write_text("STUDENT = 'ada'\n" + v.TOKEN.known[0].source)
    assert main(["labs", "check", str(file), "--html", str(page)]) == 1
    assert str(page) in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert 'data-place="#layout=watch&amp;lane=0&amp;round=0"' in text and text.count('id="trace"') == 1


def test_exercises_about_rates_have_no_single_decision():
    assert {key for key, one in catalogue.EXERCISES.items() if one.wrong} == {
        *RULES,
        "prompt_lookup",
        "silent_killer",
    }
