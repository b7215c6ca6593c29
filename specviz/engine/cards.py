"""The methods as the page and the API show them. Reading the catalogue imports no torch, so the page starts
within a second."""

from __future__ import annotations

from typing import Any

from .. import methods
from ..core.method import Method

FIELDS = (
    "key",
    "title",
    "paper",
    "family",
    "summary",
    "exactness",
    "look",
    "wins",
    "loses",
    "differs",
    "compared",
    "published",
    "aliases",
)


def cards() -> dict[str, Method]:
    """Return every method by key, in the catalogue's order."""
    return dict(methods.catalogue())


def families() -> dict[str, str]:
    """Return {title of a family: one sentence about it}."""
    return {title: family.about for title, family in methods.families().items()}


def card_data(card: Method) -> dict[str, Any]:
    """Return a method's card as plain data."""
    knobs = [
        {
            "name": k.name,
            "default": k.default,
            "low": k.low,
            "high": k.high,
            "choices": list(k.choices),
            "help": k.help,
        }
        for k in card.knobs
    ]
    return {**{name: getattr(card, name) for name in FIELDS}, "knobs": knobs, "needs": sorted(card.needs)}
