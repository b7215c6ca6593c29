"""The page's initial content, read from files: example prompts, listed methods, and the recording that is
shown first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .. import ASSETS
from ..engine import stream
from ..engine.limits import BASELINE, LANES

EXAMPLES = ASSETS / "prompts" / "examples.yaml"
IN_SIGHT = 8  # chips that are there before the list is unfolded
RECORDED = ASSETS / "traces" / "first.jsonl"


@dataclass(frozen=True)
class StartContent:
    """The page's initial content.

    ``examples``: name, prompt, and optionally look, methods, follow, target, temperature, length;
    ``first``: methods listed besides the chosen ones; ``chosen``: initially chosen methods; ``presets``:
    name, methods, and optionally temperature and about, or name, ``among`` (the keys to which the list is
    filtered) and about.
    """

    examples: tuple[dict[str, Any], ...] = ()
    first: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    presets: tuple[dict[str, Any], ...] = ()


def start_content(cards: dict[str, Any], path: Path = EXAMPLES) -> StartContent:
    """Read the initial content; missing or unknown method names are replaced by one method of each family."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        content = {}
    content = content if isinstance(content, dict) else {}

    def methods(names: Any, most: int = LANES - 1) -> list[str]:
        return [key for key in names or () if key in cards and key != BASELINE][:most]

    families = {card.family: key for key, card in reversed(cards.items())}
    first = methods(content.get("first"), IN_SIGHT) or methods(reversed(families.values()), IN_SIGHT)
    examples = [
        row | {"methods": methods(row.get("methods"))}
        for row in content.get("examples") or ()
        if _is_example(row)
    ]
    presets = [
        row | {"methods": methods(row.get("methods")), "among": methods_named(cards, row.get("called"))}
        for row in content.get("presets") or ()
        if isinstance(row, dict) and isinstance(row.get("name"), str)
    ]
    return StartContent(
        tuple(examples),
        tuple(first),
        tuple(methods(content.get("chosen")) or first[:2]),
        tuple(row for row in presets if row["methods"] or row["among"]),
    )


def methods_named(cards: dict[str, Any], called: Any) -> list[str]:
    """Return the methods whose key or alias is in ``called``, in the catalogue's order."""
    plain = lambda name: "".join(filter(str.isalnum, str(name).lower()))  # noqa: E731
    names = set(map(plain, called or ()))
    return [
        key for key, card in cards.items() if names & set(map(plain, (key, *getattr(card, "aliases", ()))))
    ]


def _is_example(row: Any) -> bool:
    return isinstance(row, dict) and all(isinstance(row.get(name), str) for name in ("name", "prompt"))


def recorded_board(path: Path = RECORDED) -> str:
    """Return the recording that is shown at first, as a value of the board; an empty board if there is
    none."""
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return stream.finished_board(0, records)
    except (OSError, ValueError):
        return stream.empty_board(0, "board.empty")
