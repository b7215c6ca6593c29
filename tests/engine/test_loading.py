"""Where models are loaded: a thread that goes on living keeps its parallel helpers, and every later run
waits for them asleep."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from specviz import zoo
from specviz.engine.engine import Engine, any_model
from specviz.engine.limits import Refused, model_key
from specviz.zoo.registry import ZooError


def test_a_model_is_loaded_in_a_thread_that_ends_with_it(monkeypatch):
    where = []

    def load(*given, **named):
        where.append((threading.current_thread(), given, named))
        return SimpleNamespace(name="toy", draft_name="", facts={"env": {"device": "cpu"}})

    monkeypatch.setattr(zoo, "load", load)
    monkeypatch.setattr("specviz.run.machine.pass_seconds", lambda loaded: 0.01)
    engine = Engine("one", "two")
    assert engine.load(None) == "toy on cpu" == engine.load("other")
    assert engine.loaded(None).pass_seconds == 0.01  # what a busy machine is told by
    for models in (model_key(None, None, True), model_key("other", None, True)):
        assert engine.load(models) == "toy on cpu" and engine.loaded(models) is not engine.loaded(None)
    assert [(given, named) for _, given, named in where] == [
        (given, named | {"deterministic": fixed})
        for fixed in (False, True)
        for given, named in ((("one", "two"), {}), (("other",), {"named_only": True}))
    ]
    assert all(thread is not threading.current_thread() and not thread.is_alive() for thread, _, _ in where)


def test_what_loading_refuses_is_said_in_its_own_words(monkeypatch):
    def load(*given, **named):
        raise ZooError("There is no such model.")

    monkeypatch.setattr(zoo, "load", load)
    with pytest.raises(Refused):
        Engine(None, None).load(None)


def test_only_the_owner_lets_visitors_name_models_of_the_hub_and_never_folders(monkeypatch, tmp_path):
    given, pinned = [], f"org/name@{'0' * 40}"
    monkeypatch.setattr(
        zoo, "load", lambda *_, **named: given.append(named) or (_ for _ in ()).throw(ZooError("no"))
    )
    for allowed, space, named_only in (("", "", True), ("1", "", False), ("1", "a/b", True)):
        monkeypatch.setenv("SPECVIZ_ALLOW_ANY_MODEL", allowed)
        monkeypatch.setenv("SPACE_ID", space)
        assert any_model() is not named_only
        for name, only in (
            (pinned, named_only),
            (str(tmp_path), True),
            ("assets/models", True),
            (f"{tmp_path}/a@b", True),
        ):
            with pytest.raises(Refused):
                Engine(None, None).load(name)
            assert given.pop() == {"named_only": only, "deterministic": False}, name
