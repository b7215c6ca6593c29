"""The rows of the picker: each method's card, the name of its drawing, its needs in words, and its measured
speed.

The speeds are those of assets/bench.json, which ``python -m specviz bench --table LEDGER --write`` writes
together with docs/bench.md. A method without an entry there has no measured speed.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from .. import ASSETS
from ..core.method import Family, Method
from ..core.needs import needs_in_words
from ..engine.cards import card_data, families
from ..engine.limits import BASELINE, split_model_key
from ..engine.server_lanes import ABOUT
from ..lab.recommend import offered
from ..methods import families as all_families
from ..methods import trained_parts
from ..servers.dialects import FAMILY
from .claim_rows import claims_of

BENCH = ASSETS / "bench.json"
SCHEMA = "specviz-bench/1"

CARD_FIELDS = {
    "key",
    "title",
    "summary",
    "family",
    "paper",
    "exactness",
    "wins",
    "loses",
    "differs",
    "published",
    "knobs",
}


@cache
def measured_speedups(path: Path = BENCH) -> dict[str, Any]:
    """Return {where, model, noise, memory, speedups} of assets/bench.json; empty if the file is missing.

    ``where``: a sentence on the machine; ``model``: the target, if its own draft model was measured;
    ``memory``: {method key: [bytes of weights, bytes of KV caches] besides the target's}; ``noise``: median
    difference of two runs of plain decoding; ``speedups``: {method key: [greedy, at temperature 1]}, None
    if not measured."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        speedups = {
            key: [row.get("0"), row.get("1")]
            for key, row in found["speedups"].items()
            if "0" in row and found["schema"] == SCHEMA
        }
        memory = found.get("memory", {})
        return {
            "memory": {key: [int(weights), int(cache)] for key, (weights, cache) in memory.items()},
            "where": found["where"],
            "model": found["target"] if found["draft"] != "none" else "",
            "noise": float(found.get("noise", 0.0)),
            "speedups": speedups,
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {"memory": {}, "where": "", "model": "", "noise": 0.0, "speedups": {}}


def speeds_apply(targets: list[dict[str, str]], models: str | None) -> bool:
    """Return whether the displayed speeds were measured with these models (limits.model_key)."""
    target, draft = split_model_key(models)
    name = next((one["model"] for one in targets if one["name"] == (target or "")), "")
    return not draft and bool(name) and name == measured_speedups()["model"]


def drawing_name(card: Method) -> str:
    """Return the name of the drawing of a method's round: copy, grid, layers, server, block, tree, chain or
    one."""
    if card.key == BASELINE:
        return "one"
    if card.family == FAMILY:
        return "server"
    if "tree" not in card.needs and any(
        part.one_pass and part.need in card.needs for part in trained_parts().values()
    ):
        return "block"
    family = all_families().get(card.family)
    return family and family.shape or ("tree" if "tree" in card.needs else "chain")


def rows(cards: dict[str, Any], first: tuple[str, ...], path: Path = BENCH) -> list[dict[str, Any]]:
    """Return one row per method. Families are in teaching order; in a family the founding method is first,
    the others follow by measured speed; plain decoding is the last row. engines, models: what the search
    finds a method by, too. bound: an upper bound, whose speed is no method's. first: keys of the methods
    that are listed at first besides the chosen ones."""
    found = measured_speedups(path)
    speeds, memory = found["speedups"], found["memory"]
    out = []
    for card in cards.values():
        engines, models = offered(card.key)
        fields = {name: value for name, value in card_data(card).items() if name in CARD_FIELDS}
        out.append(
            fields
            | {
                "baseline": card.key == BASELINE,
                "bound": card.bound,
                "first": card.key in first,
                "shape": drawing_name(card),
                "needs": needs_in_words(card.needs),
                "engines": engines,
                "models": models,
                "aliases": list(getattr(card, "aliases", ())),
                "speed": speeds.get(card.key),
                "memory": memory.get(card.key),
                "claims": claims_of(card),
            }
        )
    founders = {family.founder for family in all_families().values()}
    last = next((row["family"] for row in out if row["baseline"]), "")  # the family of plain decoding
    return sorted(
        out,
        key=lambda row: (
            row["family"] == last,
            _place(row["family"]),
            row["baseline"],
            row["key"] not in founders,
            -(row["speed"] or [0])[0],
        ),
    )


def _place(family: str) -> tuple[int, str]:
    """Return the position of a family in teaching order; undeclared ones come last."""
    return (all_families()[family].place if family in all_families() else Family("", "").place, family)


def family_sentences() -> dict[str, str]:
    """Return {title of a family: its description in one sentence}."""
    return families() | {FAMILY: ABOUT}
