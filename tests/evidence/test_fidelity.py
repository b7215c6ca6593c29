"""How each method stands to its paper: every card says it, and the page says what the cards say."""

from __future__ import annotations

from pathlib import Path

from specviz.core import COMPARED, Method
from specviz.evidence.fidelity import WHAT, page
from specviz.methods import catalogue

from ..message_codes import refuses

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"


def test_the_page_is_what_the_cards_say():
    assert PAGE.read_text(encoding="utf-8") == page(catalogue().values()), (
        "write it anew: python -m specviz list --fidelity > docs/fidelity.md"
    )


def test_every_card_says_what_differs_in_a_sentence_or_two():
    for method in catalogue().values():
        assert method.differs.endswith(".") and 10 < len(method.differs) < 420, method.key
        assert method.published == {
            name: method.read_knobs(method.published)[name] for name in method.published
        }, method.key
    assert set(WHAT) == set(COMPARED)


def test_a_card_refuses_what_its_knobs_do_not_know():
    card = dict(key="it", title="It", paper="", summary="test", build=lambda kit: None)
    with refuses(ValueError, "knob.unknown", "'gamma'"):
        Method(**card, published={"gamma": 2})
    with refuses(ValueError, "method.compared"):
        Method(**card, compared="rumours")
