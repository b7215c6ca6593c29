"""Show it, on a method's card: the claim's recording plays at once, and the controls hold what made it."""

from __future__ import annotations

import json

import pytest

from specviz import lab
from specviz.engine.cards import cards
from specviz.methods import catalogue
from specviz.ui.claim_rows import claims_of

from .conftest import Server
from .fake import FakeBackend


class Library(FakeBackend):
    """A page with every method and the shipped recordings."""

    questions = FakeBackend.questions | {"library_trace"}
    light = FakeBackend.light | {"library_trace"}

    def __init__(self):
        super().__init__()
        self.cards = cards()

    def answer(self, name, payload, cancel, seconds):
        """Answer of the library as the engine does."""
        known = name == "library_trace"
        yield from lab.answer(name, payload) if known else super().answer(name, payload, cancel, seconds)


@pytest.fixture(scope="module")
def library():
    """Server of such a page."""
    server = Server(Library())
    yield server
    server.close()


def test_show_it_plays_the_recording_of_the_claim(visit, library):
    key = next(key for key, card in catalogue().items() if any(row["recording"] for row in claims_of(card)))
    row = next(row for row in claims_of(catalogue()[key]) if row["recording"])
    page = visit(url=library.url)
    page.click(".pg-more:has-text('All methods')")
    page.fill(".pg-shelf input[type=search]", catalogue()[key].title)
    page.hover(f".pg-row[data-key={key}]")
    page.click(".pg-claim button:has-text('Show it')")
    page.wait_for_function(
        "prompt => SpecVizPage.board()?.trace().find((r) => r.type === 'header')?.prompt.text === prompt",
        arg=row["show"]["prompt"],
    )
    page.wait_for_selector(f"#board .about:has-text({json.dumps(row['text'].rstrip('.'))})")
    heads = page.evaluate("SpecVizPage.board().trace().filter((r) => r.type === 'header').map((r) => r.mode)")
    assert set(heads) == {"recorded"}
    page.wait_for_function(
        "prompt => document.querySelector('#prompt textarea').value === prompt", arg=row["show"]["prompt"]
    )
