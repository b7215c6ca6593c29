"""What the picker shows of each method: its card, a small drawing's name, what it needs in words, and how fast it was measured.

The measured figures are the table of docs/bench.md, read here and nowhere else; a method without a line there is not measured.
"""
from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from .cards import families, told
from ..servers.dialects import FAMILY
from .limits import BASELINE, apart
from .server_lanes import ABOUT

BENCH = Path(__file__).parents[2] / "docs" / "bench.md"
_FIGURE = r"([\d.]+)(?: \([^|]*\))?"  # a median, and maybe its quartiles
_ROW = re.compile(rf"^\| ([^|]+) \| (?:exact|greedy only|approximate|simulated) \| [^|]+ \| {_FIGURE} \|"
                  rf"(?: [^|]+ \| {_FIGURE} \|)?", re.MULTILINE)
_MODEL = re.compile(r"; ([\w.-]+) with (?!none;)")

NEEDS = {  # by the part of a need before its colon; what every model here has is not said
    "draft": "a small draft model", "middle": "a smaller model", "small": "a third, tiny model",
    "other_draft": "a draft model with another vocabulary",
    "tree": "a model that reads a tree in one pass", "head": "a trained head", "store": "a library of text",
    "skip": "layers that can be left out",
    "server": "the owner's server, and your prompt goes there",
    "early": "an early exit", "fuzzy": "layers side by side", "tap": "the model's inner states",
}
SHAPES = {"Servers": "server", "Lookup": "copy", "Parallel decoding": "grid", "Parallel": "grid", "Self-speculation": "layers"}
ORDER = ("Draft model", "Draft length", "Draft tree", "Lookup", "Trained heads", "Self-speculation", "Parallel decoding", "Parallel",
         "Verification", "Other vocabulary", "Lossy verification", "Collaboration")
FOUNDERS = {"speculative", "draft_tree", "prompt_lookup", "medusa", "layerskip", "jacobi"}
SAID = {"key", "title", "summary", "family", "paper", "exactness", "wins", "loses", "differs", "published", "knobs"}
BLOCKS = {"head:dflash", "head:dspark", "head:pard", "head:peagle", "head:blockwise"}  # heads that write a whole block in one pass


@cache
def measured(path: Path = BENCH) -> dict[str, Any]:
    """``where``: the sentence on the machine; ``model``: the target, with its own draft; ``of``: title -> speed-up over plain
    decoding, greedy and (or None) with dice."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {"where": "", "model": "", "of": {}}
    where = next((line for line in text.splitlines() if line and not line.startswith(("#", " ", "|"))), "")
    model, found = _MODEL.search(where), _ROW.findall(text)
    return {"where": where, "model": model[1] if model else "",
            "of": {title.strip(): [float(greedy), float(rng) if rng else None] for title, greedy, rng in found}}


def timed(targets: list[dict[str, str]], models: str | None) -> bool:
    """Whether the measured speeds are those of these models (limits.together), among the targets that may be chosen."""
    target, draft = apart(models)
    name = next((one["model"] for one in targets if one["name"] == (target or "")), "")
    return not draft and bool(name) and name == measured()["model"]


def shape(card: Any) -> str:
    """The drawing of the method's round, from the card's family and needs: copy, grid, layers, block, tree, chain or one."""
    if card.key == BASELINE:
        return "one"
    if BLOCKS & set(card.needs) and "tree" not in card.needs:
        return "block"
    return SHAPES.get(card.family) or ("tree" if "tree" in card.needs else "chain")


def needs(card: Any) -> list[str]:
    """What the method needs, in words, each once."""
    kinds = sorted({name.split(":")[0] for name in card.needs if ":" in name or name != "head"})
    return [NEEDS[kind] for kind in kinds if kind in NEEDS]


def rows(cards: dict[str, Any], first: tuple[str, ...], path: Path = BENCH) -> list[dict[str, Any]]:
    """A row a method: families in teaching order, the method that founded one first, then by measured speed; plain decoding last."""
    speeds = measured(path)["of"]
    out = []
    for card in cards.values():
        said = {name: value for name, value in told(card).items() if name in SAID}
        out.append(said | {"baseline": card.key == BASELINE, "first": card.key in first, "shape": shape(card), "needs": needs(card),
                           "aliases": list(getattr(card, "aliases", ())), "speed": speeds.get(card.title)})
    return sorted(out, key=lambda row: (row["baseline"], _place(row["family"]), row["key"] not in FOUNDERS, -(row["speed"] or [0])[0]))


def _place(family: str) -> tuple[int, str]:
    """Families in the order in which they are taught; one that is not named here stands behind them."""
    return (ORDER.index(family) if family in ORDER else len(ORDER), family)


def about() -> dict[str, str]:
    """The sentence of every family."""
    return families() | {FAMILY: ABOUT}
