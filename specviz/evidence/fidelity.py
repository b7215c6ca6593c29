"""How each method stands to its paper, as a page: made of the cards, so that a card and the page cannot disagree."""
from __future__ import annotations

from typing import Any, Iterable

from ..core import AS_PUBLISHED, Method

WHAT = {"code": "authors' code", "formula": "formula", "notes": "notes only"}
HEAD = """# How faithful is each method?

Made from the methods' own cards by `python -m specviz list --fidelity`; a test holds that this page is what the command says.

Compared with: *authors' code*, where it is public and was read or run on the same inputs; the paper's *formula*, re-derived and
enumerated on toys; *notes only*, where neither could be had in full. Whether the output is the target's is another question, which
`python -m specviz verify` answers.

| method | paper | compared with | equal or differs | knobs as published |
|---|---|---|---|---|
"""


def page(methods: Iterable[Method]) -> str:
    """The page in Markdown, a row a method."""
    return HEAD + "".join(f"| {' | '.join(_cells(method))} |\n" for method in methods)


def _cells(method: Method) -> Iterable[str]:
    knobs = ", ".join(f"{name} {_shown(value)}" for name, value in method.published.items())
    told = "equal" if method.differs == AS_PUBLISHED else method.differs
    return (_plain(cell) for cell in (method.title, method.paper or "none", WHAT[method.compared], told, knobs or "the defaults"))


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`")
