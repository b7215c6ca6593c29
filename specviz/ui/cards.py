"""The catalogue as the page needs it before anything heavy is imported: the page is up in a second and torch comes with the first
run.

What the methods say of themselves lies in ``methods/cards.json``, one line a file of the catalogue, each with the digest of the
file it was read from. Where a file is new, gone or changed the catalogue itself is imported, and nothing is lost but that second;
``python -m specviz list --write`` (``make cards``) writes the file anew, and a test asks for it.
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

METHODS = Path(__file__).parent.parent / "methods"
FILE = "cards.json"


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
    aliases: tuple[str, ...] = ()

    def read_knobs(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values as the method wants them; ValueError with a sentence when one does not fit."""
        if not given:
            return {}
        from specviz import catalogue

        return catalogue()[self.key].read_knobs(given)


def cards(folder: Path = METHODS) -> dict[str, Card]:
    """Every method's card by key, families together and plain decoding first, as the catalogue orders them."""
    lines = _lines(folder)
    found = _imported() if lines is None else [_card(**line["card"]) for line in lines.values() if "card" in line]
    return {card.key: card for card in sorted(found, key=lambda card: (card.key != "autoregressive", card.family, card.title))}


def families(folder: Path = METHODS) -> dict[str, str]:
    """The one sentence of every family, by its title."""
    lines = _lines(folder)
    if lines is None:
        from specviz.methods import families as imported

        return {title: family.about for title, family in imported().items()}
    return {line["family"]["title"]: line["family"]["about"] for line in lines.values() if "family" in line}


def write(folder: Path = METHODS) -> Path:
    """Write the file anew from the catalogue; its path."""
    of, lines = {card.key: card for card in _imported()}, {}
    for name, digest in _digests(folder).items():
        path = Path(name)
        if path.stem != "__init__":
            lines[name] = {"digest": digest, "card": vars(of[path.stem])}
        else:
            lines[name] = {"digest": digest, "family": vars(import_module(f"specviz.methods.{path.parent.name}").FAMILY)}
    rows = (f"{json.dumps(name)}: {json.dumps(line, ensure_ascii=False, default=_listed)}" for name, line in lines.items())
    (folder / FILE).write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    return folder / FILE


def told(card: Any) -> dict[str, Any]:
    """A card as plain data."""
    knobs = [{"name": k.name, "default": k.default, "low": k.low, "high": k.high, "choices": list(k.choices), "help": k.help}
             for k in card.knobs]
    return {**{name: getattr(card, name) for name in Card.__dataclass_fields__}, "knobs": knobs, "needs": sorted(card.needs)}


def _lines(folder: Path) -> dict[str, Any] | None:
    """What the file says, by the name of each file of the catalogue; None where it does not fit them."""
    try:
        lines = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return lines if {name: line["digest"] for name, line in lines.items()} == _digests(folder) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _digests(folder: Path) -> dict[str, str]:
    """Of every family's and every method's file, by its name."""
    return {path.relative_to(folder).as_posix(): sha256(path.read_text(encoding="utf-8").encode()).hexdigest()[:16]
            for path in sorted(folder.glob("*/*.py"))}


def _imported() -> list[Card]:
    from specviz import catalogue

    def plain(method: Any) -> Card:
        fields = {name: getattr(method, name) for name in Card.__dataclass_fields__}
        fields["knobs"] = tuple(KnobCard(**{n: getattr(k, n) for n in KnobCard.__dataclass_fields__}) for k in method.knobs)
        return Card(**fields)

    return [plain(method) for method in catalogue().values()]


def _card(knobs: list[dict[str, Any]], needs: list[str], aliases: list[str], **fields: Any) -> Card:
    asked = tuple(KnobCard(**{n: _tuples(v) for n, v in k.items()}) for k in knobs)
    return Card(**fields, needs=frozenset(needs), aliases=tuple(aliases), knobs=asked)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    """What JSON has no word for: a knob's fields, and sets in an order."""
    return sorted(value) if isinstance(value, frozenset) else vars(value)
