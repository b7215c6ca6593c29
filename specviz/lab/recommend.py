"""Recommend a method for a server: four questions, answered with published and measured speed-ups
(assets/recommend.yaml, assets/bench.json).

Each method is represented by the published or measured figure whose setting is nearest to the request; the
differences are listed with the answer. Methods with a figure for this load and temperature come first, by
speed-up; plain decoding is listed with 1. Nothing is interpolated.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import yaml

from .. import ASSETS
from . import LabError

FILE = ASSETS / "recommend.yaml"  # recommendations by hardware and task
BENCH = ASSETS / "bench.json"  # measured speeds
SHOWN = 3
LOADS = {"one": (1, 1), "few": (2, 8), "many": (16, 10**6)}  # requests at once
TASK = 1  # weights of settings that differ when figures are compared
HARDWARE = 2
LOAD = 8
TEMPERATURE = 4


@cache
def _table() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def questions(name: Any = None) -> dict[str, Any]:
    """Return {question: {title, answers: {key: text}}}, in the order in which they are asked."""
    named = _table()["questions"]
    models = named["model"]["models"]
    answers = {
        key: text.format(models=", ".join(models.get(key, ())))
        for key, text in named["model"]["answers"].items()
    }
    return named | {"model": {"title": named["model"]["title"], "answers": answers}}


def offered(card: str) -> tuple[list[str], list[str]]:
    """Return the engines that offer a method of the catalogue and the models that bring what it needs, by
    their names."""
    table = _table()
    engines, models = table["questions"]["engine"]["answers"], table["questions"]["model"]["models"]
    methods = [
        method
        for method in table["methods"].values()
        if method["card"] == card and method.get("searched", True)
    ]
    return (
        [
            name
            for key, name in engines.items()
            if any(key in method["flags"] for method in methods)
            or card in table["engines"][key].get("also", ())
        ],
        [name for method in methods for need in method.get("needs", ()) for name in models.get(need, ())],
    )


def recommend(**asked: Any) -> dict[str, Any]:
    """Recommend methods. asked: {question: key of an answer}; the first answer counts where none is given.
    Return {asked, documents, few, warnings, answers, others}; few: why there are fewer than three answers, or empty; warnings:
    {identifier: sentence} about models of this kind.
    An answer: {method, title, card, paper, note, flags, figure: {speedup, setting, source} or None,
    differs: [...]}, best first. Raises LabError."""
    table, chosen = _table(), {}
    for question, about in table["questions"].items():
        answer = asked.get(question, next(iter(about["answers"])))
        if not isinstance(answer, str) or answer not in about["answers"]:
            raise LabError(f"{question} is one of {', '.join(about['answers'])}.", "recommend.answer")
        chosen[question] = answer
    possible = [
        key
        for key, method in table["methods"].items()
        if chosen["engine"] in method["flags"] and chosen["model"] in method.get("needs", [chosen["model"]])
    ]
    answers = sorted((_answer(key, chosen) for key in possible), key=_order)
    engine = table["engines"][chosen["engine"]]
    few = engine.get("few", {}).get(chosen["model"], "") if len(answers) < SHOWN else ""
    return {
        "asked": chosen,
        "documents": engine["documents"],
        "few": few,
        "warnings": dict(table["warnings"].get(chosen["experts"], {})),
        "answers": answers[:SHOWN],
        "others": [{"method": one["method"], "title": one["title"]} for one in answers[SHOWN:]],
    }


def experts_read(experts: int, used: int, rows: int) -> float:
    """Return how many times as many experts a pass over ``rows`` tokens reads as a pass over one: the
    expected union, if each token chooses ``used`` of ``experts`` on its own. Real tokens share more, so
    this is an upper bound."""
    return experts * (1 - (1 - used / experts) ** rows) / used


def will_it_pay(
    active: float, draft: float, acceptance: float, experts: int = 0, used: int = 0
) -> dict[str, Any]:
    """Estimate whether a draft model pays for one request, where the time of a pass is the time to read the
    weights. active, draft: active parameters of the target and parameters of the draft, in the same unit;
    acceptance: of a draft token; experts, used: of each layer, per token; 0 for a dense model.

    Return {speedups: [of 1, 2, ... draft tokens], best: the draft length with the highest, 0 if none is
    above 1, pays}. Raises LabError."""
    if not (
        active > 0 and draft >= 0 and 0 <= acceptance < 1 and 0 <= used <= experts and (used or not experts)
    ):
        raise LabError(
            "active is above 0, draft 0 or more, acceptance from 0 to below 1, and no token uses more experts than there are.",
            "recommend.pays",
        )
    numbers = _table()["pays"]
    share = numbers["expert_share"] if experts else 0.0
    speedups = []
    for length in range(1, numbers["longest"] + 1):
        tokens = sum(acceptance**i for i in range(length + 1))
        union = experts_read(experts, used, length + 1) if experts else 1.0
        speedups.append(round(tokens / (1 - share + share * union + length * draft / active), 3))
    best = max(range(len(speedups)), key=speedups.__getitem__)
    pays = speedups[best] > 1
    return {"speedups": speedups, "best": best + 1 if pays else 0, "pays": pays}


def _answer(key: str, chosen: dict[str, str]) -> dict[str, Any]:
    method = _table()["methods"][key]
    figures = [figure for figure in (*_table()["figures"], *_measured()) if figure["method"] == key]
    figure = min(
        figures, key=lambda one: sum(weight for _, weight in _differences(one, chosen)), default=None
    )
    differs = [name for name, _ in _differences(figure, chosen)] if figure else []
    return {
        "method": key,
        "title": method["title"],
        "card": method["card"],
        "paper": method.get("paper", ""),
        "note": method["note"],
        "flags": method["flags"][chosen["engine"]],
        "figure": figure and {name: figure[name] for name in ("speedup", "setting", "source")},
        "differs": differs,
    }


def _differences(figure: dict[str, Any], chosen: dict[str, str]) -> list[tuple[str, int]]:
    """Return how a figure's setting differs from the request, as sentences, and the total weight of the
    differences."""
    if figure["task"] == "every":  # plain decoding
        return []
    low, high = LOADS[chosen["load"]]
    hardware = _table()["engines"][chosen["engine"]]["hardware"]
    found = [
        ("task", TASK, figure["task"] != chosen["task"]),
        ("hardware", HARDWARE, hardware != "any" and figure["hardware"] != hardware),
        ("load", LOAD, not low <= figure.get("batch", 0) <= high),
        ("temperature", TEMPERATURE, figure.get("temperature") != chosen["temperature"]),
    ]
    return [(name, weight) for name, weight, differs in found if differs]


def _order(answer: dict[str, Any]) -> tuple[bool, float]:
    """Return the sort key: figures for this load first, then by speed-up; methods without a figure last."""
    figure = answer["figure"]
    return "load" in answer["differs"] or figure is None, -(figure["speedup"] if figure else 0.0)


@cache
def _measured() -> tuple[dict[str, Any], ...]:
    """Return the figures of assets/bench.json: batch size 1, all tasks."""
    plain = {"method": "plain", "speedup": 1.0, "task": "every", "setting": "by definition", "source": ""}
    try:
        found = json.loads(BENCH.read_text(encoding="utf-8"))
        where, speedups = str(found["where"]).split(", torch")[0], found["speedups"]
    except (OSError, ValueError, LookupError, TypeError):
        return (plain,)
    rows = [
        {
            "method": key,
            "speedup": round(speedups[method["card"]][column], 2),
            "task": "any",
            "temperature": temperature,
            "batch": 1,
            "hardware": "cpu",
            "setting": f"measured: {found['target']}, {where}",
            "source": "docs/bench.md",
        }
        for key, method in _table()["methods"].items()
        if key != "plain" and method.get("card_counts", True)
        for column, temperature in (("0", "greedy"), ("1", "sampled"))
        if column in speedups.get(method["card"], {})
    ]
    return (plain, *rows)
