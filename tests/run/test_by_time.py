"""Methods that decide by measured times are declared, and a deterministic run of them does not ask for
any."""

import pytest

from specviz import Sampling, Session, load
from specviz.core.state import Costs
from specviz.engine.generation import Generation, generate
from specviz.methods import catalogue

TEXT = "one two one two one"


@pytest.fixture
def asked(monkeypatch):
    """The classes of the costs that parts ask while a method runs."""
    found = set()
    for name in ("verify", "draft", "decided"):
        own = getattr(Costs, name)
        monkeypatch.setattr(
            Costs, name, lambda self, value, own=own: found.add(type(self)) or own(self, value)
        )
    return found


def test_whatever_asks_for_measured_costs_is_declared(at_home, asked):
    loaded, undeclared = load(device="cpu"), []
    for key, method in catalogue().items():
        if loaded.unsupported_reason(method) is None and not method.decides_by_time:
            asked.clear()
            list(
                Session(loaded, key, sampling=Sampling(float(method.exactness != "greedy only"))).run(
                    TEXT, 16
                )
            )
            undeclared += [key] * (Costs in asked)
    assert not undeclared


@pytest.mark.parametrize("seeded", [True, False])
def test_an_answer_with_a_chosen_seed_asks_for_no_measured_costs(at_home, asked, seeded):
    """Of the endpoint's generation, which the page's ``deterministic`` does not reach."""
    fields = {"temperature": 1.0, "seed": 5, "max_tokens": 24}
    request = Generation(TEXT, True, "cost_ratio", {}, fields, seeded=seeded)
    list(generate(load(device="cpu"), request, 60.0))
    assert (Costs in asked) is not seeded


@pytest.mark.parametrize("key", ["cost_ratio", "sequoia", "prompt_lookup"])
def test_a_declared_method_asks_for_measured_costs_unless_the_run_is_deterministic(at_home, asked, key):
    loaded = load(device="cpu")
    assert catalogue()[key].decides_by_time
    for deterministic in (False, True):
        asked.clear()
        list(Session(loaded, key, sampling=Sampling(1.0), deterministic=deterministic).run(TEXT, 24))
        assert (Costs in asked) is not deterministic
