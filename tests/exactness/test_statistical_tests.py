"""A method may be called exact only with greedy equality on several networks, a test of its distribution,
and wrong variants of its own parts that this test catches. Asserted from the catalogue, so a new exact
method without all three fails here."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import test_architectures, test_distribution, test_fast_distribution, test_greedy
from .statistical_tests import LEAST, WRONG, Boasts, architectures, caught, off, settings, spoiled, wrongs
from .toys import OWN_TARGET, later, methods, needs_own_target, sample, small_knobs, toy_of

EXACT = methods("exact")


@pytest.mark.parametrize("method", EXACT, ids=lambda m: m.key)
def test_greedy_equality_and_the_distribution_are_tested(method):
    assert method in test_greedy.GREEDY and method in test_architectures.METHODS
    assert settings(test_distribution.EXACT, method.key) == len(small_knobs(method)) > 0, (
        "its distribution is enumerated for every choice of its knobs"
    )
    if needs_own_target(method):
        files = {file for need in method.needs if (file := OWN_TARGET.get(need.split(":")[0]))}
        assert any(
            method.key in (Path(__file__).parent / f"{file}.py").read_text(encoding="utf-8") for file in files
        ), "and on its own target"
        return
    assert len({name.split()[0] for name in architectures(method)}) >= 2, (
        "greedy equality on at least two real architectures"
    )
    assert method in test_fast_distribution.EXACT, "and on our own forward"


@pytest.mark.parametrize(
    "method, wrong",
    [later(pytest.param(m, w, id=f"{m.key}: {w}"), m.key in sample()) for m in EXACT for w in wrongs(m)],
)
def test_the_distribution_catches_a_method_with_one_wrong_part(method, wrong):
    """The same check passes the method as it is: test_distribution asserts that, and the first of it here."""
    assert caught(method, wrong) > LEAST
    if wrong == "wrong temperature":
        assert off(method, None, 0, 2) < 1e-12


def test_a_spoiled_part_is_the_methods_own_but_for_one_thing():
    method = next(m for m in EXACT if m.key == "speculative")
    right, wrong = (method.build(toy_of(method, 3), **small_knobs(method)[0]) for _ in range(2))
    spoiled(wrong, "another distribution claimed", 3)
    assert (
        isinstance(wrong.drafter, Boasts)
        and isinstance(wrong.drafter, type(right.drafter))
        and type(wrong.verifier) is type(right.verifier)
    )
    assert set(wrongs(method)) == set(WRONG)
