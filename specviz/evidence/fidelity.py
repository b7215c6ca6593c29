"""Write docs/fidelity.md: how each method relates to its paper, generated from the cards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import AS_PUBLISHED, Method

WHAT = {"code": "public code", "formula": "formula", "notes": "notes only"}
HEAD = """# Fidelity to the papers

Generated from the cards of the methods by `specviz list --fidelity`; a test checks that the page is up to date.

| compared with | meaning |
|---|---|
| public code | the authors' code, or an engine's where the card says so, was read or run on the same inputs |
| formula | the paper's formula was derived again and enumerated on toy distributions |
| notes only | neither was available in full |

Whether a method's output is the target's is another question: `specviz verify`.

| method | paper | compared with | equal or differs | knobs as published |
|---|---|---|---|---|
"""


def page(methods: Iterable[Method]) -> str:
    """Return the page as Markdown, one row per method."""
    return HEAD + "".join(f"| {' | '.join(_cells(method))} |\n" for method in methods)


def _cells(method: Method) -> Iterable[str]:
    knobs = ", ".join(f"{name} {_shown(value)}" for name, value in method.published.items())
    differs = "equal" if method.differs == AS_PUBLISHED else method.differs
    return (
        _plain(cell)
        for cell in (
            method.title,
            method.paper or "none",
            WHAT[method.compared],
            differs,
            knobs or "the defaults",
        )
    )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`")
