"""What is offered can be used: a knob's values end where the models end, as trying them shows."""
from __future__ import annotations

import pytest

from specviz import Session, ZooError, catalogue, load
from specviz.zoo import survey
from specviz.zoo.registry import register

LIMITED = [method for method in catalogue().values() if any(knob.needs for knob in method.knobs)]


def installed():
    found = [e for e in register().entries.values() if e.role == "target" and e.path and e.installed() and e.draft]
    return [pytest.param(e.name, marks=[] if e.name == "Llama-specviz-16M" else [pytest.mark.thorough]) for e in found]


@pytest.mark.parametrize("target", installed())
def test_the_highest_value_that_is_offered_opens_and_the_next_one_does_not(target):
    loaded, described = load(target, device="cpu"), survey(target)
    for method in LIMITED:
        limits = loaded.knob_limits(method)
        assert limits == described.knob_limits(method)
        for knob in method.knobs:
            if knob.needs:
                most = limits.get(knob.name, knob.high)
                kit = loaded.kit()
                method.build(kit, **method.read_knobs({knob.name: most}))
                kit.close()
                if most < knob.high:
                    with pytest.raises(ZooError):
                        method.build(loaded.kit(), **method.read_knobs({knob.name: most + 1}))


def test_a_draft_without_other_sizes_limits_specinfer(at_home):
    loaded = load(device="cpu")
    assert loaded.knob_limits(catalogue()["specinfer"]) == {"models": 1} == survey().knob_limits(catalogue()["specinfer"])
    assert LIMITED and Session(loaded, "specinfer", {"models": 1})
