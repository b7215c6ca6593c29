"""The certificate catches seldom, small and late mistakes, also where the verifier reports the right
numbers; and no right method."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from specviz.evidence import whole_answers as whole
from specviz.evidence.decision_checks import FEW, DecisionChecks
from specviz.evidence.token_bets import NodeTest, Token, acceptance_rates
from specviz.methods import catalogue

from ..exactness import toys
from .test_certificate import PROMPTS, Loaded
from .wrong_variants import STEPS, Wrong, chain, find, method, registry

QUICK = {  # steps that are enough in ``make test``, and the test that finds it
    "chain: often": (480, "reported decisions"),
    "draft: top-k and top-p only recorded": (120, "impossible drafts"),
    "bonus: no processors": (480, "impossible"),
    "siblings drawn independently, recorded as without replacement": (240, "impossible drafts"),
    "mask: a node sees its preceding sibling": (240, "rows of passes"),
}


@pytest.mark.parametrize("name", QUICK)
def test_a_wrong_variant_is_found_early_by_its_own_test(name):
    most, test = QUICK[name]
    found = find(registry()[name], [tokens for tokens in STEPS if tokens <= most])
    assert test in found.tests, found


@pytest.mark.thorough
@pytest.mark.parametrize("name", registry())
def test_a_wrong_variant_fails(name):
    assert find(registry()[name]).tokens, name


def test_the_page_of_the_certificate_holds_every_variant_and_names_none_that_is_not_caught():
    page = (Path(__file__).parents[2] / "docs" / "certificate.md").read_text(encoding="utf-8")
    page = page.split("## Power")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "|" in line
    ]
    lines = {row[0]: row[1:] for row in rows[2:]}
    assert set(lines) == set(registry()) and len(lines) >= 30
    assert all(tokens.isdigit() and tests for tokens, tests in lines.values())


def test_the_rule_that_the_variants_vary_passes():
    answer = whole.certify_answers(Loaded(share=0.3, sharp=1.2), method(chain, Wrong), PROMPTS, 300)
    assert (
        answer["status"] == "pass"
        and answer["decisions"]["decided"] > 100
        and not answer["decisions"]["wrong"]
    ), answer["detail"]


class Roles:
    """Models of every role, as a method of the catalogue asks for them."""

    codec = SimpleNamespace(prompts=())
    context = 96
    end_tokens = frozenset({7})

    def __init__(self):
        self.toy = toys.toy(9, share=0.5, sharp=1.2)

    def kit(self):
        return toys.Kit(self.toy.net, self.toy.small)

    def open_target(self):
        return self.kit().target

    def unsupported_reason(self, method):
        return None

    def knob_limits(self, method):
        return {}


EXACT = [
    key
    for key, method in catalogue().items()
    if method.exactness == "exact" and not any(need.startswith("experts") for need in method.requires)
]


@pytest.mark.parametrize(
    "key, tokens",
    [
        pytest.param(
            key, 300 if i % 60 == 40 else 900, id=key, marks=[] if i % 60 == 40 else pytest.mark.thorough
        )
        for i, key in enumerate(EXACT)
    ],
)
def test_no_right_method_fails_or_reports_other_numbers(key, tokens):
    answer = whole.certify_answers(Roles(), key, PROMPTS, tokens)
    assert answer["status"] == "pass" and not answer["decisions"]["wrong"], answer["detail"]


def token(accept: float, draw: float, accepted: bool, depth: int = 0, probs=(0.5, 0.3, 0.2)) -> Token:
    """The first token was drafted, always; it is accepted with probability 5/6."""
    p, q = torch.tensor(probs, dtype=torch.float64), torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)
    return Token(
        0 if accepted else 1,
        "accepted" if accepted else "correction",
        p,
        p,
        draft=q,
        tests=(NodeTest(0, q, accepted, accept, draw),),
        depth=depth,
    )


def wrong(one: Token, sampled=None) -> int:
    checks = DecisionChecks()
    checks.add(one, *acceptance_rates(one), sampled)
    return checks.wrong.total()


@pytest.mark.parametrize(
    "accept, draw, accepted, sampled, count",
    [
        (5 / 6, 0.5, True, None, 0),
        (5 / 6, 0.9, False, None, 0),
        (5 / 6, 0.9, True, None, 1),
        (5 / 6, 0.5, False, None, 1),
        (0.93, 0.5, True, None, 1),
        (0.8334, 0.5, True, None, 0),
        (5 / 6, 0.9, False, (0.0, 1.0, 0.0), 0),
        (5 / 6, 0.9, False, (0.5, 0.3, 0.2), 1),
    ],
)
def test_a_decision_that_is_reported_wrong_is_counted(accept, draw, accepted, sampled, count):
    assert wrong(token(accept, draw, accepted), None if sampled is None else torch.tensor(sampled)) == count


def test_a_bonus_token_is_sampled_from_the_target():
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    assert (
        wrong(Token(1, "bonus", p, p), p.float())
        == 0
        < wrong(Token(1, "bonus", p, p), torch.tensor([0.3, 0.3, 0.4]))
    )


def test_mistakes_at_one_depth_are_enough():
    checks = DecisionChecks()
    for i in range(1000):
        one = token(5 / 6, 0.5, True)
        checks.add(one, *acceptance_rates(one), None)
        if i < FEW + 1:
            assert not checks.failed
            one = token(0.95, 0.5, True, depth=5)
            checks.add(one, *acceptance_rates(one), None)
    assert checks.failed and checks.wrong.total() / checks.decided.total() < 0.01
