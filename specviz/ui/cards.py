"""The catalogue as the page needs it before anything heavy is imported.

A method is data, so its file can be read without being run: every plain field of its ``METHOD = Method(...)`` is taken from
the source, also where it is a name that stands in another file. The page is up in a second and torch comes with the first run.
A test holds that the cards equal the catalogue, and that none of them needs torch; where a file's fields are not plain, the
catalogue itself is imported and nothing is lost but that second.
"""
from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

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
    differs: str = ""
    compared: str = "notes"
    published: dict[str, Any] = field(default_factory=dict, hash=False)

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


class _Names:
    """What the names of a source file stand for: assigned there, or in the files of this package that it imports from."""

    def __init__(self, path: Path):
        body = ast.parse(path.read_text(encoding="utf-8"), path.name).body
        self._own = {t.id: node.value for node in body if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value
                     for t in (node.targets if isinstance(node, ast.Assign) else [node.target]) if isinstance(t, ast.Name)}
        self._from = {a.asname or a.name: (path.parents[node.level - 1].joinpath(*(node.module or "").split(".")), a.name)
                      for node in body if isinstance(node, ast.ImportFrom) and node.level for a in node.names}

    def find(self, name: str) -> tuple[ast.expr | None, _Names]:
        """The expression behind a name, and the file's names that it is written in; None where it is none of them."""
        if name in self._own:
            return self._own[name], self
        if name in self._from:
            module, there = self._from[name]
            path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            if path.is_file():
                return _Names(path).find(there)
        return None, self


def _read(path: Path) -> Card | None:
    names = _Names(path)
    call, _ = names.find("METHOD")
    if not isinstance(call, ast.Call):
        return None
    fields = {k.arg: _plain(k.value, names) for k in call.keywords if k.arg in Card.__dataclass_fields__}
    fields |= {name: _plain(value, names) for name, value in zip(list(Card.__dataclass_fields__)[:5], call.args)}
    return Card(**fields)


def _plain(node: ast.expr, names: _Names) -> Any:
    """The value of a literal, a Knob(...), a frozenset, a dict(...), the keys of a dict, a tuple of those, or a name for one."""
    if isinstance(node, ast.Name):
        found, there = names.find(node.id)
        if found is not None:
            return _plain(found, there)
    if isinstance(node, ast.Tuple):
        return tuple(_plain(item, names) for item in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _plain(node.left, names) + _plain(node.right, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return _CALLS[node.func.id](node, names)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _NotPlain(ast.unparse(node)) from None


def _named(call: ast.Call, names: _Names) -> dict[str, Any]:
    """Keyword arguments, also those of ``**NAME``."""
    told: dict[str, Any] = {}
    for k in call.keywords:
        value = _plain(k.value, names)
        told |= value if k.arg is None else {k.arg: value}
    return told


def _items(call: ast.Call, names: _Names) -> tuple[Any, ...]:
    """What tuple(...) makes of its argument; of a dict only the keys count, so that its values may be anything."""
    node, there = call.args[0], names
    if isinstance(node, ast.Name):
        found, there = names.find(node.id)
        node = found or node
    return tuple(_plain(key, there) for key in node.keys if key) if isinstance(node, ast.Dict) else tuple(_plain(node, there))


_CALLS: dict[str, Callable[[ast.Call, _Names], Any]] = {
    "Knob": lambda call, names: KnobCard(*(_plain(a, names) for a in call.args), **_named(call, names)),
    "frozenset": lambda call, names: frozenset(*(_plain(a, names) for a in call.args)),
    "dict": _named,
    "tuple": _items,
}


def _imported() -> dict[str, Card]:
    from specviz import catalogue

    def plain(method: Any) -> Card:
        fields = {name: getattr(method, name) for name in Card.__dataclass_fields__}
        fields["knobs"] = tuple(KnobCard(**{n: getattr(k, n) for n in KnobCard.__dataclass_fields__}) for k in method.knobs)
        return Card(**fields)

    return {key: plain(method) for key, method in catalogue().items()}


def _in_order(found: list[Card]) -> list[Card]:
    return sorted(found, key=lambda card: (card.key != "autoregressive", card.family, card.title))
