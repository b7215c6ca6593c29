"""The default models load at the first touch; what is chosen when they are there decides what the picker
offers."""

from __future__ import annotations

import asyncio

import pytest

from specviz.ui.handlers import Handlers

from .fake import FakeBackend


class Backend(FakeBackend):
    """Offers another model, on which one method cannot run."""

    def ready(self, target):
        return target in self.loaded

    def unsupported_reason(self, target=None):
        return {"other": {}, None: {"jacobi": "needs another model"}}[target]

    def load(self, target):
        self.loaded.add(target)
        return str(target)


@pytest.fixture
def hands():
    backend = Backend()
    backend.loaded = set()
    made = Handlers(backend, True, {})
    made.ui |= {"models": "models", "methods": "methods"}
    made._picker = lambda off, models: {"methods": off}
    return made


async def played(hands, *chosen):
    return [one async for one in hands.preload(*chosen)]


def test_a_preload_says_nothing_about_methods(hands):
    parts = asyncio.run(played(hands, None, None))
    assert hands.backend.ready(None) and parts and all("methods" not in part for part in parts)


def test_after_it_the_picker_is_that_of_the_model_chosen_by_then(hands):
    asyncio.run(played(hands, None, None))
    hands.backend.loaded.add("other")
    assert (
        hands.preloaded(None, None)["methods"] == {"jacobi": "needs another model"}
        and hands.preloaded("other", None)["methods"] == {}
    )


def test_a_model_that_was_chosen_first_loads_no_default(hands):
    asyncio.run(played(hands, "other", None))
    assert not hands.backend.loaded and list(hands.preloaded("other", None)) == ["models"]
