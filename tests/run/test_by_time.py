"""Methods that are named as going by measured times do ask for them, and not in a deterministic run."""
import pytest

from specviz import Sampling, Session, load
from specviz.core.method import BY_TIME
from specviz.core.state import Costs


@pytest.mark.parametrize("key", [key for key in BY_TIME if key != "smartspec"])  # which learns from seconds that a round is charged
def test_a_method_that_goes_by_time_asks_for_measured_costs(at_home, monkeypatch, key):
    asked = []
    for name in ("verify", "draft", "decided"):
        own = getattr(Costs, name)
        monkeypatch.setattr(Costs, name, lambda self, value, own=own: asked.append(type(self).__name__) or own(self, value))
    loaded = load(device="cpu")
    for deterministic in (False, True):
        asked.clear()
        list(Session(loaded, key, sampling=Sampling(1.0), deterministic=deterministic).run("one two one two one", 24))
        assert ("Costs" in asked) is not deterministic
