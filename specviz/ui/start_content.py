"""The page's initial content, read from files: example prompts, listed methods, the recorded run."""
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .. import ASSETS
from . import stream
from .limits import BASELINE, LANES

EXAMPLES = ASSETS / "prompts" / "examples.yaml"
IN_SIGHT = 8  # chips that are there before the list is unfolded
RECORDED = ASSETS / "traces" / "first.jsonl"


@dataclass(frozen=True)
class StartContent:
    """The page's initial content.

    ``examples``: name, prompt, and optionally look, methods, follow, target, temperature; ``first``: methods listed besides the chosen
    ones; ``chosen``: initially chosen; ``presets``: name, methods, and optionally temperature and about; or name, ``among`` (the keys
    that the list is filtered to) and about.
    """

    examples: tuple[dict[str, Any], ...] = ()
    first: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    presets: tuple[dict[str, Any], ...] = ()


def start_content(cards: dict[str, Any], path: Path = EXAMPLES) -> StartContent:
    """Read the file; missing or unknown names are filled from the catalogue: one method of each family."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        content = {}
    content = content if isinstance(content, dict) else {}

    def methods(names: Any, most: int = LANES - 1) -> list[str]:
        return [key for key in names or () if key in cards and key != BASELINE][:most]

    families = {card.family: key for key, card in reversed(cards.items())}
    first = methods(content.get("first"), IN_SIGHT) or methods(reversed(families.values()), IN_SIGHT)
    examples = [row | {"methods": methods(row.get("methods"))} for row in content.get("examples") or () if _is_example(row)]
    presets = [row | {"methods": methods(row.get("methods")), "among": named(cards, row.get("called"))}
               for row in content.get("presets") or () if isinstance(row, dict) and isinstance(row.get("name"), str)]
    return StartContent(tuple(examples), tuple(first), tuple(methods(content.get("chosen")) or first[:2]),
                 tuple(row for row in presets if row["methods"] or row["among"]))


def named(cards: dict[str, Any], called: Any) -> list[str]:
    """Return the methods with one of these names, by alias or key, in the catalogue's order."""
    plain = lambda name: "".join(filter(str.isalnum, str(name).lower()))  # noqa: E731
    names = set(map(plain, called or ()))
    return [key for key, card in cards.items() if names & set(map(plain, (key, *getattr(card, "aliases", ()))))]


def _is_example(row: Any) -> bool:
    return isinstance(row, dict) and all(isinstance(row.get(name), str) for name in ("name", "prompt"))


def recorded_board(path: Path = RECORDED) -> str:
    """Return the recorded run that the board shows at first, as a board's value; an empty board without one."""
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return stream.finished_board(0, records)
    except (OSError, ValueError):
        return stream.empty_board(0, "board.empty")
