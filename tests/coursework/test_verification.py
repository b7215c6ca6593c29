"""The checks of the three verification exercises: right rules pass in every style, wrong ones are recognised."""

from __future__ import annotations

import itertools
import random

import pytest

from specviz.coursework import verification as v
from specviz.coursework.exercise import Report
from specviz.coursework.outcomes import CALLS, CHANCE, OutcomeTest, outcomes_of, run_test
from specviz.coursework.submission import SubmissionError, TrustedCode

from . import submissions as s

RULES = {
    "token_rejection": (v.TOKEN, s.TOKEN),
    "sibling_residual": (v.SIBLINGS, s.SIBLINGS),
    "block_verification": (v.BLOCK, s.BLOCK),
}
RIGHT = [(key, name) for key, (_, some) in RULES.items() for name in some]
WRONG = [(key, one.key) for key, (rule, _) in RULES.items() for one in rule.known]


def sampled(outcomes, seed: int, calls: int = CALLS, rule=v.TOKEN) -> OutcomeTest:
    """The test of a submission whose outcomes are known."""
    rng, test = random.Random(seed), rule.test()
    rounds = (rng.randrange(v.ROUNDS) for _ in itertools.count())
    tables = [(list(one), list(one.values())) for one in outcomes]
    run_test(test, lambda index, _: rng.choices(*tables[index])[0], rounds, calls)
    return test


def test_there_are_enough_examples():
    assert all(len(some) >= 4 for _, some in RULES.values()) and all(
        len(rule.known) >= 6 for rule, _ in RULES.values()
    )


@pytest.mark.parametrize("key, name", RIGHT)
def test_a_right_rule_passes_in_every_style(key, name):
    rule, some = RULES[key]
    report = Report(key, "")
    check = v.decisions_check(rule, TrustedCode(some[name]), 7, report, 300)
    assert check.ok and check.code == "decisions.right" and report.behaves_like is None, check.sentence


@pytest.mark.parametrize("key", RULES)
def test_a_solution_has_the_outcomes_of_the_engine(key):
    rule, some = RULES[key]
    code, (right, _) = TrustedCode(some["solution"]), rule.outcomes()
    for one, expected in zip(rule.rounds(), right):
        found = outcomes_of(lambda rng, one=one: v._enumerated(rule, code, one, rng))
        assert abs(sum(expected.values()) - 1) < 1e-9
        assert max(abs(found.get(end, 0) - expected.get(end, 0)) for end in {**found, **expected}) < 1e-9


@pytest.mark.parametrize("key, name", WRONG)
def test_a_mistake_is_recognised(key, name):
    rule, _ = RULES[key]
    test = sampled(rule.outcomes()[1][name], 3, rule=rule)
    assert test.rejected and test.p < CHANCE and test.behaves_like() == name


def test_an_unknown_mistake_is_caught_and_not_given_a_name():
    source = s.TOKEN["solution"].replace("float(p[i, x] / q[i, x])", "0.8 * float(p[i, x] / q[i, x])")
    report = Report("token_rejection", "")
    check = v.decisions_check(v.TOKEN, TrustedCode(source), 1, report)
    assert (
        not check.ok
        and report.behaves_like is None
        and check.code in ("decisions.unknown", "decisions.impossible")
    )


def test_no_right_rule_fails_by_chance():
    right = v.TOKEN.outcomes()[0]
    assert not any(sampled(right, seed, 400).rejected for seed in range(20))


def test_the_whole_check_passes_the_solution_and_fails_a_mistake():
    expected = v._token_answers("ada")
    report = Report("token_rejection", "ada")
    v.TOKEN_REJECTION.check(TrustedCode(s.TOKEN["solution"] + f"\nANSWER = {expected}"), "ada", report)
    assert report.passed and report.score == 1 and len(report.checks) == 5
    report = Report("token_rejection", "ada")
    v.TOKEN_REJECTION.check(TrustedCode(v.TOKEN.known[0].source), "ada", report)
    failed = {check.name for check in report.checks if not check.ok}
    assert report.behaves_like == "no_residual" and {"numbers", "decisions", "sampled text"} <= failed
    assert "greedy text" not in failed  # that is why the mistake is seldom noticed


@pytest.mark.parametrize("key", [key for key, _ in RULES.items() if key != "token_rejection"])
@pytest.mark.thorough
def test_the_whole_check_passes_the_other_solutions(key):
    exercise = {"sibling_residual": v.SIBLING_RESIDUAL, "block_verification": v.BLOCK_VERIFICATION}[key]
    answers = {"sibling_residual": v._sibling_answers, "block_verification": v._block_answers}[key]("ada")
    report = Report(key, "ada")
    exercise.check(TrustedCode(RULES[key][1]["solution"] + f"\nANSWER = {answers}"), "ada", report)
    assert report.passed, [check.sentence for check in report.checks]


@pytest.mark.parametrize(
    "answer, code",
    [
        ("None", "answer.chain"),
        ("1", "answer.chain"),
        ("(0.5, 1)", "answer.chain"),
        ("(True, 1)", "answer.chain"),
        ("(9, 0)", "answer.range"),
        ("(0, 99)", "answer.range"),
        ("(float('nan'), 0)", "answer.chain"),
    ],
)
def test_an_answer_of_another_form_is_refused(answer, code):
    with pytest.raises(SubmissionError) as error:
        v.decisions_check(
            v.TOKEN, TrustedCode(f"def verify(p, q, draft, rng):\n    return {answer}"), 1, Report("", "")
        )
    assert error.value.code == code


@pytest.mark.parametrize(
    "path, code",
    [("[3]", "answer.path"), ("[0, 1]", "answer.path"), ("[99]", "answer.path"), ("0", "answer.tree")],
)
def test_a_path_that_does_not_lead_down_is_refused(path, code):
    source = f"def verify(p, q, tokens, parents, rng):\n    return {path}, 0"
    with pytest.raises(SubmissionError) as error:
        v.decisions_check(v.SIBLINGS, TrustedCode(source), 1, Report("", ""))
    assert error.value.code == code


def test_students_get_their_own_numbers():
    numbers = [v.TOKEN_REJECTION.numbers(name) for name in ("ada", "Ada ", "alan")]
    assert numbers[0] == numbers[1] != numbers[2]
    assert abs(sum(numbers[0]["P"]) - 1) < 1e-9
