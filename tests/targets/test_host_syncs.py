"""No round of any method waits for the device more often than docs/gpu.md says, which says why."""

from __future__ import annotations

import pytest

from specviz.methods import catalogue
from specviz.zoo.registry import register

from ..exactness.toys import later, needs_own_target
from .host_syncs import most, save_pair, table

pytestmark = pytest.mark.far
FAMILIES = {method.family: method.key for method in reversed(catalogue().values())}  # the first of each
NOW = {*FAMILIES.values(), "eagle2", "eagle3"}
CASES = [
    later(pytest.param(method, 0.0, id=method.key), method.key in NOW)
    for method in catalogue().values()
    if method.key in table(0.0)
]
CASES += [
    later(pytest.param(catalogue()[key], 1.0, id=f"{key}-drawn"), key == "speculative") for key in table(1.0)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pair(tmp_path_factory.mktemp("waits"))


def test_the_table_says_of_every_method_how_often_it_waits_and_why():
    shipped = {entry.kind for entry in register().entries.values() if entry.kind}
    new = {
        key
        for key, method in catalogue().items()
        if method.trains and not shipped & {part.kind for part in method.trains}
    }
    new |= {
        key for key, method in catalogue().items() if needs_own_target(method)
    }  # the tiny pair is a Llama
    assert (
        table(0.0).keys() | new == catalogue().keys()
    )  # a method whose weights nobody has trained yet needs no row
    assert all(why[0].isalpha() for _, why in table(0.0).values())


@pytest.mark.parametrize("method, temperature", CASES)
def test_no_round_waits_more_often_than_the_table_says(folder, method, temperature):
    assert most(folder, method, temperature) <= table(temperature)[method.key][0]
