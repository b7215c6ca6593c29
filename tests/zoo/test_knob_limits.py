"""What is offered can be used: a knob's values end where the models end, as trying them shows."""

from __future__ import annotations

import pytest

from specviz import Session, SessionError, ZooError, catalogue, load
from specviz.ui import controls
from specviz.zoo import survey
from specviz.zoo.registry import register

from ..message_codes import refuses
from .checkpoints import write

LIMITED = [method for method in catalogue().values() if any(knob.needs for knob in method.knobs)]


def installed():
    found = [
        e for e in register().entries.values() if e.role == "target" and e.path and e.installed() and e.draft
    ]
    return [
        pytest.param(e.name, marks=[] if e.name == "Llama-specviz-16M" else [pytest.mark.thorough])
        for e in found
    ]


@pytest.mark.parametrize("target", installed())
def test_the_highest_value_that_is_offered_opens_and_the_next_one_does_not(target):
    loaded, described = load(target, device="cpu"), survey(target)
    for method in LIMITED:
        limits = loaded.knob_limits(method)
        assert limits == described.knob_limits(method)
        for knob in method.knobs:
            if knob.needs:
                most = limits.get(knob.name, knob.top)
                kit = loaded.kit()
                method.build(kit, **method.read_knobs({knob.name: knob.value_at(most)}))
                kit.close()
                if most < knob.top:
                    with pytest.raises(ZooError):
                        method.build(loaded.kit(), **method.read_knobs({knob.name: knob.value_at(most + 1)}))


def test_a_draft_without_other_sizes_limits_specinfer(at_home):
    loaded = load(device="cpu")
    assert (
        loaded.knob_limits(catalogue()["specinfer"])
        == {"models": 1}
        == survey().knob_limits(catalogue()["specinfer"])
    )
    Session(loaded, "specinfer", {"models": 1})
    with refuses(SessionError, "session.knob_limit", "models", 1):  # at once, not by a run that fails
        Session(loaded, "specinfer", {"models": 2})
    assert LIMITED and Session(loaded, "specinfer", {"models": 1})


def test_choices_that_need_a_draft_end_where_there_is_none(at_home):
    method = catalogue()["grammar_forced"]
    knob = next(knob for knob in method.knobs if knob.name == "rest")
    for draft, most in (("none", {"rest": 1}), (None, {})):
        assert (
            load(draft=draft, device="cpu").knob_limits(method)
            == most
            == survey(draft=draft).knob_limits(method)
        )
    shown = controls.widget(knob, "draft model", "it", most=1)
    assert "draft model" not in str(shown.get_config()) and "prompt lookup" in str(shown.get_config())


def test_a_target_of_one_layer_has_no_early_exit(tmp_path, monkeypatch):
    write(tmp_path / "target", layers=1)
    (tmp_path / "models.yaml").write_text(
        "default: t\nbackends: {fast: [llama]}\nmodels:\n  t: {path: target}\n"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    method = catalogue()["layerskip"]
    assert load(device="cpu").unsupported_reason(method) and survey()(method)
