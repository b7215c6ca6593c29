"""How a draft's acceptance grows with what it was trained on and with its size: laws in the logarithm, fitted to checkpoints.

Scylla's question (2505.07858): acceptance = a + b ln(training tokens), and = a + b ln(parameters). A recipe leaves ``training.json``
beside a draft's weights: figures on held-out answers of its target after so many tokens. What a law says beyond its points is a
prediction. No torch here: the page asks, too.
"""
from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Iterable, Sequence

FILE = "training.json"
FIGURES = {"acceptance_rate_greedy": "temperature 0", "acceptance_rate_sampled": "temperature 1"}
FEWEST = 3  # different sizes that a law is laid through: two fit any line
AHEAD = 4  # times the largest size that a prediction is made for


class ScalingError(ValueError):
    """What lies beside a draft cannot be used; the message is one sentence."""


@dataclass(frozen=True)
class Law:
    """y = a + b ln(x), least squares. r2: the share of the spread it explains, None where there is none; most: the largest x."""

    a: float
    b: float
    r2: float | None
    points: int
    most: float

    def at(self, x: float) -> float:
        return self.a + self.b * math.log(x)


def fit(points: Sequence[tuple[float, float]]) -> Law | None:
    """The law through points (x, y), x above 0; None with fewer than three different x."""
    if len({x for x, _ in points}) < FEWEST:
        return None
    logs, ys = [math.log(x) for x, _ in points], [y for _, y in points]
    mean, level = sum(logs) / len(logs), sum(ys) / len(ys)
    b = sum((x - mean) * (y - level) for x, y in zip(logs, ys)) / sum((x - mean) ** 2 for x in logs)
    a = level - b * mean
    spread = sum((y - level) ** 2 for y in ys)
    missed = sum((y - a - b * x) ** 2 for x, y in zip(logs, ys))
    return Law(a, b, 1 - missed / spread if spread > 1e-12 else None, len(points), max(x for x, _ in points))


def drafts_in(*folders: Path) -> list[dict[str, Any]]:
    """What the drafts in these folders carry, with their ``name``, small ones first; of one name the first. Raises ScalingError."""
    found: dict[str, dict[str, Any]] = {}
    for path in (path for folder in folders for path in sorted(folder.glob(f"*/{FILE}"))):
        if path.parent.name not in found:
            found[path.parent.name] = {"name": path.parent.name, **_read(path)}
    return sorted(found.values(), key=lambda one: (one["parameters"], one["name"]))


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        points = [{"tokens": int(p["tokens"]), **{name: float(p[name]) for name in FIGURES if name in p}} for p in told["points"]]
        size, target, began = int(told["parameters"]), str(told["target"]), told["from"]
        if size < 1 or not all(p["tokens"] > 0 and all(0 <= p.get(name, 0) <= 1 for name in FIGURES) for p in points):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        raise ScalingError(f"{path.parent.name}/{path.name} does not say what a draft earned: train that draft again.") from None
    return {"target": target, "parameters": size, "from": began and str(began), "answers": told.get("answers"), "points": points}


def distributions(drafts: Iterable[dict[str, Any]], figure: str) -> dict[str, Any]:
    """{each: {name: law over its tokens}, tokens: law over the points of all, parameters: law over where each ended}. A draft that
    began as another one learned from tokens that are not counted: the law over the tokens of all leaves it out."""
    drafts = list(drafts)
    each = {one["name"]: [(p["tokens"], p[figure]) for p in one["points"] if figure in p] for one in drafts}
    anew = [point for one in drafts if not one["from"] for point in each[one["name"]]]
    ends = [(one["parameters"], max(each[one["name"]])[1]) for one in drafts if each[one["name"]]]
    return {"each": {name: _told(fit(points)) for name, points in each.items()}, "tokens": _told(fit(anew)),
            "parameters": _told(fit(ends))}


def _told(probs: Law | None) -> dict[str, Any] | None:
    """A law with its prediction: what it says of four times the largest size, kept between 0 and 1."""
    if probs is None:
        return None
    return {**asdict(probs), "prediction": {"at": AHEAD * probs.most, "value": min(1.0, max(0.0, probs.at(AHEAD * probs.most)))}}


def report(target: str, drafts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """{target, drafts, figures: {figure: laws with what they say in sentences}, began: [sentence on a draft that was another one],
    missing: [command that makes more points]} of one target."""
    mine = [one for one in drafts if one["target"] == target]
    figures = {figure: distributions(mine, figure) for figure in FIGURES}
    for found in figures.values():
        found["said"] = said(found, sum(not one["from"] for one in mine))
    first = figures[next(iter(FIGURES))]
    missing = [] if any(first["each"].values()) else [command(target)]
    missing += [] if first["parameters"] else [command(target, size) for size in ("small", "wide", "deep")]
    return {"target": target, "drafts": mine, "figures": figures, "missing": missing,
            "began": [f"{one['name']} began as {one['from']}, whose tokens are not counted." for one in mine if one["from"]]}


def said(found: dict[str, Any], anew: int) -> list[str]:
    """A sentence for each law there is; ``anew``: drafts that the law over all tokens speaks of."""
    out = [sentence(f"Over the tokens of {name}", "tokens", probs) for name, probs in found["each"].items() if probs]
    if found["tokens"] and anew > 1:
        out.append(sentence("Over the tokens of all drafts that began anew", "tokens", found["tokens"]))
    if found["parameters"]:
        out.append(sentence("Over the sizes of all drafts", "parameters", found["parameters"]))
    return out


def command(target: str, size: str = "") -> str:
    return f"python -m specviz.training draft{f' --size {size}' if size else ''} --target {target} --data DIR"


def sentence(over: str, unit: str, probs: dict[str, Any]) -> str:
    r2 = "all points are alike" if probs["r2"] is None else f"R\u00b2 {probs['r2']:.3f}"
    ahead, sign = probs["prediction"], "+" if probs["b"] >= 0 else "\u2212"
    begins = f"{probs['a']:.3f}".replace("-", "\u2212")
    return (f"{over}: acceptance = {begins} {sign} {abs(probs['b']):.4f} \u00b7 ln({unit}), {r2} with "
            f"{probs['points']} points; prediction for {AHEAD} times the most, {short(ahead['at'])} {unit}: {ahead['value']:.2f}.")


def short(number: float) -> str:
    return next((f"{number / size:.3g} {unit}" for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)) if number >= size), f"{number:g}")
