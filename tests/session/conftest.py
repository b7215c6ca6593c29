"""A tiny pair on disk, named by a models.yaml of its own."""
from __future__ import annotations

import pytest

from specviz import zoo

from .checkpoints import register


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of the pair."""
    folder = tmp_path_factory.mktemp("zoo")
    register(folder)
    return folder


@pytest.fixture
def at_home(tiny, monkeypatch):
    """The pair is what ``load()`` loads."""
    monkeypatch.setenv("SPECVIZ_MODELS", str(tiny / "models.yaml"))
    yield tiny
    zoo.forget()
