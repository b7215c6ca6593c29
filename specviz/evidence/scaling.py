"""Scaling of a draft's acceptance rate with training tokens and model size: logarithmic fits to checkpoints
(Scylla, 2505.07858).

The fits are acceptance = a + b ln(training tokens), and acceptance = a + b ln(parameters). Training writes
``training.json`` next to a draft's weights, with acceptance rates on held-out answers at several token
counts. Values beyond the measured points are predictions. This module does not import torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.errors import CodedError

FILE = "training.json"
FIGURES = {"acceptance_rate_greedy": "temperature 0", "acceptance_rate_sampled": "temperature 1"}
FEWEST = 3  # distinct sizes needed for a fit
EXPLAINS = 0.5  # smallest R2 of a fit that predicts anything
AHEAD = 4  # prediction at this multiple of the largest size


class ScalingError(CodedError, ValueError):
    """A draft's training.json cannot be used."""


@dataclass(frozen=True)
class LogFit:
    """A least-squares fit y = a + b ln(x). r2: share of the variance that it explains, None if y does not
    vary; points: their number; most: the largest x."""

    a: float
    b: float
    r2: float | None
    points: int
    most: float

    def predict(self, x: float) -> float:
        """Return the fitted y at x."""
        return self.a + self.b * math.log(x)


def fit(points: Sequence[tuple[float, float]]) -> LogFit | None:
    """Fit y = a + b ln(x) to points (x, y) with x above 0; None with fewer than three distinct x."""
    if len({x for x, _ in points}) < FEWEST:
        return None
    logs, ys = [math.log(x) for x, _ in points], [y for _, y in points]
    mean, level = sum(logs) / len(logs), sum(ys) / len(ys)
    b = sum((x - mean) * (y - level) for x, y in zip(logs, ys)) / sum((x - mean) ** 2 for x in logs)
    a = level - b * mean
    spread = sum((y - level) ** 2 for y in ys)
    missed = sum((y - a - b * x) ** 2 for x, y in zip(logs, ys))
    return LogFit(
        a, b, 1 - missed / spread if spread > 1e-12 else None, len(points), max(x for x, _ in points)
    )


def drafts_in(*folders: Path) -> list[dict[str, Any]]:
    """Return the content of training.json of every draft model in these folders, smallest first; of drafts
    with the same name, the first. Raises ScalingError."""
    found: dict[str, dict[str, Any]] = {}
    for path in (path for folder in folders for path in sorted(folder.glob(f"*/{FILE}"))):
        if path.parent.name not in found:
            found[path.parent.name] = {"name": path.parent.name, **_read(path)}
    return sorted(found.values(), key=lambda one: (one["parameters"], one["name"]))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        points = [
            {"tokens": int(p["tokens"]), **{name: float(p[name]) for name in FIGURES if name in p}}
            for p in data["points"]
        ]
        size = int(data["parameters"])
        target = str(data["target"])
        began = data["from"]
        if size < 1 or not all(
            p["tokens"] > 0 and all(0 <= p.get(name, 0) <= 1 for name in FIGURES) for p in points
        ):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        raise ScalingError(
            f"{path.parent.name}/{path.name} is not a valid training record: train that draft again.",
            "scaling.record",
        ) from None
    return {
        "target": target,
        "parameters": size,
        "from": began and str(began),
        "answers": data.get("answers"),
        "points": points,
    }


def log_fits(drafts: Iterable[dict[str, Any]], figure: str) -> dict[str, Any]:
    """Return {"each": {name: fit over the draft's training tokens}, "tokens": fit over all points,
    "parameters": fit over the drafts' sizes, "sizes": {name: acceptance that goes into it}, "at_tokens":
    the tokens it is taken at}. Sizes are compared at the largest number of tokens that all drafts reached,
    by each draft's own fit, since a larger draft that learned for as many minutes saw fewer tokens. A draft
    that was initialised from another is left out of the fit over all tokens, because the other one's
    training tokens are not counted."""
    drafts = list(drafts)
    each = {one["name"]: [(p["tokens"], p[figure]) for p in one["points"] if figure in p] for one in drafts}
    fits = {name: fit(points) for name, points in each.items()}
    from_scratch = [point for one in drafts if not one["from"] for point in each[one["name"]]]
    common = min((fitted.most for fitted in fits.values() if fitted), default=None)
    sizes = {
        name: min(1.0, max(0.0, fitted.predict(common))) for name, fitted in fits.items() if fitted and common
    }
    ends = [(one["parameters"], sizes[one["name"]]) for one in drafts if one["name"] in sizes]
    return {
        "each": {name: _fit_report(fitted) for name, fitted in fits.items()},
        "tokens": _fit_report(fit(from_scratch)),
        "parameters": _fit_report(fit(ends)),
        "sizes": sizes,
        "at_tokens": common,
    }


def _fit_report(fitted: LogFit | None) -> dict[str, Any] | None:
    """Return a fit with its prediction at AHEAD times the largest size, clamped to [0, 1]. The prediction
    is None if the fit explains less than half of the variance."""
    if fitted is None:
        return None
    if fitted.r2 is not None and fitted.r2 < EXPLAINS:
        return {**asdict(fitted), "prediction": None}
    return {
        **asdict(fitted),
        "prediction": {
            "at": AHEAD * fitted.most,
            "value": min(1.0, max(0.0, fitted.predict(AHEAD * fitted.most))),
        },
    }


def report(target: str, drafts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the report on one target: {target, drafts, figures: {figure: fits with sentences}, began:
    [sentence on an initialised draft], missing: [command that creates more points]}."""
    mine = [one for one in drafts if one["target"] == target]
    figures = {figure: log_fits(mine, figure) for figure in FIGURES}
    for found in figures.values():
        found["said"] = sentences(found, sum(not one["from"] for one in mine))
    first = figures[next(iter(FIGURES))]
    missing = [] if any(first["each"].values()) else [command(target)]
    missing += [] if first["parameters"] else [command(target, size) for size in ("small", "wide", "deep")]
    return {
        "target": target,
        "drafts": mine,
        "figures": figures,
        "missing": missing,
        "began": [
            f"{one['name']} was initialised from {one['from']}, whose tokens are not counted."
            for one in mine
            if one["from"]
        ],
    }


FIT = (
    "{over}: acceptance = {a} {sign} {b:.4f} \u00b7 ln({unit}), {r2} with {points} points; prediction for {ahead} times the most, "
    "{at} {unit}: {value:.2f}."
)


def sentences(found: dict[str, Any], from_scratch: int) -> list[str]:
    """Return a sentence per fit that predicts. from_scratch: number of drafts in the fit over all tokens."""
    out = [
        sentence(f"Over the tokens of {name}", "tokens", fitted)
        for name, fitted in found["each"].items()
        if _predicts(fitted)
    ]
    if _predicts(found["tokens"]) and from_scratch > 1:
        out.append(sentence("Over the tokens of all drafts trained from scratch", "tokens", found["tokens"]))
    if _predicts(found["parameters"]):
        over = f"Over the sizes of all drafts, at {short_number(found['at_tokens'])} tokens"
        out.append(sentence(over, "parameters", found["parameters"]))
    return out


def _predicts(fitted: dict[str, Any] | None) -> bool:
    return bool(fitted and fitted["prediction"])


def command(target: str, size: str = "") -> str:
    """Return the command that trains a draft model of this target."""
    return f"python -m specviz.training draft{f' --size {size}' if size else ''} --target {target} --data DIR"


def sentence(over: str, unit: str, fitted: dict[str, Any]) -> str:
    """Return a sentence on one fit. over: what it is a fit over; unit: of x."""
    r2 = "all points are alike" if fitted["r2"] is None else f"R\u00b2 {fitted['r2']:.3f}"
    ahead, sign = fitted["prediction"], "+" if fitted["b"] >= 0 else "\u2212"
    begins = f"{fitted['a']:.3f}".replace("-", "\u2212")
    return FIT.format(
        over=over,
        a=begins,
        sign=sign,
        b=abs(fitted["b"]),
        unit=unit,
        r2=r2,
        points=fitted["points"],
        ahead=AHEAD,
        at=short_number(ahead["at"]),
        value=ahead["value"],
    )


def short_number(number: float) -> str:
    """Return a number with the suffix k, M or G."""
    return next(
        (
            f"{number / size:.3g} {unit}"
            for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3))
            if number >= size
        ),
        f"{number:g}",
    )
