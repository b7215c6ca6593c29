"""Fetching a hub model for a visitor: it blocks nobody, has a limit, and ends when nobody waits."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from specviz.engine import fetching
from specviz.engine.engine import Engine
from specviz.engine.fetching import fetch, may_fetch
from specviz.engine.loading import Loader
from specviz.engine.messages import Refused

from ..ui.fake import FakeBackend

ENTRY = SimpleNamespace(
    name="far", hub="org/far", revision="0" * 40, memory="1.5", target="", gguf="", role="target", draft=""
)
FOR_EVER = "import time; time.sleep(600)"


def code(action) -> str:
    with pytest.raises(Refused) as refused:
        action()
    return refused.value.code


@pytest.mark.parametrize("limit", ["SECONDS", "STALL_SECONDS"])
def test_a_fetch_that_dribbles_is_ended_with_its_process(monkeypatch, limit):
    monkeypatch.setattr(fetching, "FETCH", FOR_EVER)
    monkeypatch.setattr(fetching, limit, 0.5)
    begun = []
    popen = fetching.subprocess.Popen
    monkeypatch.setattr(
        fetching.subprocess, "Popen", lambda *given, **named: begun.append(popen(*given, **named)) or begun[0]
    )
    assert code(lambda: fetch([ENTRY], threading.Event())) == "models.fetch_slow"
    assert begun[0].poll() is not None


def test_a_fetch_ends_when_nobody_waits_and_reports_a_failure(monkeypatch):
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr(fetching, "FETCH", FOR_EVER)
    assert code(lambda: fetch([ENTRY], stop)) == "models.fetch_left"
    for last_words, refused in (
        ("Killed", "models.fetch_failed"),
        ("12", "models.fetch_failed"),
        ('["The hub cannot be reached.", "hub.unreachable"]', "hub.unreachable"),
    ):
        monkeypatch.setattr(fetching, "FETCH", f"import sys; sys.exit({last_words!r})")
        assert code(lambda: fetch([ENTRY], threading.Event())) == refused
    monkeypatch.setattr(fetching, "FETCH", "pass")
    fetch([ENTRY], threading.Event())


def test_a_model_that_does_not_fit_on_the_disc_is_not_fetched(monkeypatch):
    monkeypatch.setattr(fetching, "FETCH", FOR_EVER)
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda place: SimpleNamespace(free=3e9))
    assert code(lambda: fetch([ENTRY], threading.Event())) == "models.disc"


@pytest.mark.parametrize(
    "switch, space, expected", [("", "", True), ("", "a/b", False), ("1", "a/b", True), ("0", "", False)]
)
def test_the_owner_switches_fetching_and_a_space_has_it_off(monkeypatch, switch, space, expected):
    monkeypatch.setenv("SPECVIZ_FETCH", switch)
    monkeypatch.setenv("SPACE_ID", space)
    monkeypatch.setattr("specviz.engine.engine.to_fetch", lambda book, target, draft: [ENTRY])
    assert may_fetch() is expected
    engine = Engine()
    assert engine.fetches(None) is False  # the owner's own
    if expected:
        assert engine.fetches("far")
    else:
        assert code(lambda: engine.fetches("far")) == "models.fetch_off"


class FarBackend(FakeBackend):
    """Its model "other" is fetched until somebody stops it."""

    def __init__(self):
        super().__init__()
        self.stopped = []

    def fetches(self, target):
        return target == "other"

    def fetch(self, target, stop):
        assert stop.wait(60)
        self.stopped.append(target)
        raise Refused("models.fetch_left")


def test_a_fetch_blocks_no_model_that_is_here_and_ends_with_its_last_visitor():
    backend = FarBackend()
    loader = Loader(backend)

    async def fetched():
        async with aclosing(loader.wait("other")) as progress:
            async for _ in progress:
                pass

    async def both():
        far = [asyncio.ensure_future(fetched()) for _ in range(2)]
        while not loader._lanes or loader._lanes[True].asking < 2:
            await asyncio.sleep(0.01)
        async for _ in loader.wait(None):
            pass
        assert backend.ready(None) and not backend.stopped
        far[0].cancel()
        await asyncio.sleep(0.1)
        assert not backend.stopped
        far[1].cancel()
        until = time.monotonic() + 30
        while not backend.stopped and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await asyncio.gather(*far, return_exceptions=True)

    asyncio.run(both())
    assert backend.stopped == ["other"]
