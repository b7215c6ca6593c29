"""The catalogue as the page needs it before anything heavy is imported.

A method is data, so its file can be read without being run: every plain field of its ``METHOD = Method(...)`` is taken from
the source. The page is up in a second and torch comes with the first run. A test holds that the cards equal the catalogue;
where a file's fields are not plain, the catalogue itself is imported and nothing is lost but that second.
"""
from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METHODS = Path(__file__).parent.parent / "methods"


@dataclass(frozen=True)
class KnobCard:
    """What core.method.Knob says."""

    name: str
    default: Any
    low: float | None = None
    high: float | None = None
    help: str = ""
    choices: tuple[str, ...] = ()
    only_with: tuple[tuple[str, str, tuple[Any, ...]], ...] = ()


@dataclass(frozen=True)
class Card:
    """What core.method.Method says, without what builds it."""

    key: str
    title: str
    paper: str
    family: str
    summary: str
    exactness: str = "exact"
    knobs: tuple[KnobCard, ...] = ()
    needs: frozenset[str] = frozenset()
    look: str = ""
    wins: str = ""
    loses: str = ""

    def read_knobs(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values as the method wants them; ValueError with a sentence when one does not fit."""
        if not given:
            return {}
        from specviz import catalogue

        return catalogue()[self.key].read_knobs(given)


def cards(folder: Path = METHODS) -> dict[str, Card]:
    """Every method's card by key, families together and plain decoding first, as the catalogue orders them."""
    try:
        found = [_read(path) for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")]
    except _NotPlain:
        return _imported()
    return {card.key: card for card in _in_order([card for card in found if card])}


def told(card: Any) -> dict[str, Any]:
    """A card as plain data."""
    knobs = [{"name": k.name, "default": k.default, "low": k.low, "high": k.high, "choices": list(k.choices), "help": k.help}
             for k in card.knobs]
    return {**{name: getattr(card, name) for name in Card.__dataclass_fields__}, "knobs": knobs, "needs": sorted(card.needs)}


class _NotPlain(ValueError):
    """A field that only running the file can tell."""


def _read(path: Path) -> Card | None:
    tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
    names = {t.id: node.value for node in tree.body if isinstance(node, ast.Assign)
             for t in node.targets if isinstance(t, ast.Name)}
    call = names.get("METHOD")
    if not isinstance(call, ast.Call):
        return None
    fields = {k.arg: _plain(k.value, names) for k in call.keywords if k.arg in Card.__dataclass_fields__}
    fields |= {name: _plain(value, names) for name, value in zip(list(Card.__dataclass_fields__)[:5], call.args)}
    return Card(**fields)


def _plain(node: ast.expr, names: dict[str, ast.expr]) -> Any:
    """The value of a literal, a Knob(...), a frozenset, a tuple of those, or a name in the file that stands for one."""
    if isinstance(node, ast.Name) and node.id in names:
        return _plain(names[node.id], names)
    if isinstance(node, ast.Tuple):
        return tuple(_plain(item, names) for item in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _plain(node.left, names) + _plain(node.right, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "Knob":
            return KnobCard(*(_plain(a, names) for a in node.args), **{k.arg: _plain(k.value, names) for k in node.keywords})
        if node.func.id == "frozenset":
            return frozenset(*(_plain(a, names) for a in node.args))
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _NotPlain(ast.unparse(node)) from None


def _imported() -> dict[str, Card]:
    from specviz import catalogue

    def plain(method: Any) -> Card:
        fields = {name: getattr(method, name) for name in Card.__dataclass_fields__}
        fields["knobs"] = tuple(KnobCard(**{n: getattr(k, n) for n in KnobCard.__dataclass_fields__}) for k in method.knobs)
        return Card(**fields)

    return {key: plain(method) for key, method in catalogue().items()}


def _in_order(found: list[Card]) -> list[Card]:
    return sorted(found, key=lambda card: (card.key != "autoregressive", card.family, card.title))
