"""Measure drafters on prompts that no drafter was trained on: of the kinds that visitors type, with `--size mt_bench`
MT-bench's first turns, with `--size families` every trained drafter on fewer prompts.

`eval/general.jsonl` or `eval/mt_bench.jsonl` of the data folder holds the prompts; methods run on the real engine.
Counted, so that the figures do not depend on the machine: tokens per target pass by kind of prompt, acceptance by
place in the draft, and tokens per pass by place in the answer. `--ship` writes docs/trained_SUITE.json and, of a few
methods, its picture, which docs/trained.md shows.
"""

from __future__ import annotations

import json
import random
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

from .. import ROOT, zoo
from ..core import Sampling
from ..evidence.benchmark import CatalogueRunner
from ..run.session import Session
from ..trace.answer_places import lengths_by_place
from ..trace.metrics import Totals
from .drafters import methods_to_measure, use_work_models
from .files import write_json, write_text
from .job import Job, TrainingError

FIGURES = ROOT / "docs" / "trained_{}.json"  # by suite
SUITES = {  # of the page: title, and what the prompts are
    "general": ("On prompts as visitors type them", "held-out prompts of the kinds that people type"),
    "mt_bench": ("On MT-bench", "first turns of MT-bench (2306.05685)"),
    "families": ("Every trained drafter", "held-out prompts of the kinds that people type"),
}
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2")
RESAMPLES = 1000  # of prompts, for an interval


def run(job: Job) -> Path:
    """Measure the methods of the recipe, or those of ``report_kinds``; return the path of the figures. Figures of
    other methods on the same prompts are kept."""
    hparams = job.hparams("general")
    asked = prompts(job, hparams["prompts"], hparams["file"])
    shown = figures_file(hparams.get("suite") or Path(hparams["file"]).stem)
    path = shown if job.ship else job.folder() / shown.name
    facts = {"target": job.target, "prompts": len(asked), "new_tokens": hparams["new_tokens"]}
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    same = all(before.get(name) == value for name, value in facts.items())
    found: dict[str, dict[str, Any]] = before["methods"] if same else {}
    with use_work_models(job):
        loaded = zoo.load(job.target, device=job.device)
        methods = hparams["methods"]
        if methods == "trained":  # all that this target has weights for
            trained = methods_to_measure({"with_draft": ()})
            methods = {method.key: {} for method in trained if not loaded.unsupported_reason(method)}
        chosen = {key: knobs for key, knobs in methods.items() if key in (job.report_kinds or (key,))}
        for temperature in hparams["temperatures"]:
            for key, knobs in chosen.items():
                session = Session(loaded, key, knobs, Sampling(temperature), deterministic=True)
                runs = [
                    (
                        kind,
                        CatalogueRunner(session)(
                            text, Sampling(temperature, seed=i), hparams["new_tokens"]
                        ).totals,
                    )
                    for i, (kind, text) in enumerate(asked)
                ]
                mine = found.setdefault(session.method.title, {})
                mine[f"{temperature:g}"] = figures(runs)
                print(session.method.title, temperature, mine[f"{temperature:g}"], flush=True)
    write_json(path, facts | {"methods": found})
    if has_picture(found):
        write_text(path.with_suffix(".svg"), picture(found))
    return path


def has_picture(found: dict[str, Any]) -> bool:
    """Return whether the figures of so many methods are drawn: each has a colour of its own."""
    return len(found) <= len(COLOURS)


def figures_file(suite: str) -> Path:
    """Return the path of the figures that docs/trained.md shows."""
    return FIGURES.with_name(FIGURES.name.format(suite))


def shipped() -> dict[str, dict[str, Any]]:
    """Return the figures that docs/trained.md shows, by suite."""
    paths = {suite: figures_file(suite) for suite in SUITES}
    return {
        suite: json.loads(path.read_text(encoding="utf-8")) for suite, path in paths.items() if path.is_file()
    }


def prompts(job: Job, count: int, file: str) -> list[tuple[str, str]]:
    """Return up to ``count`` pairs (kind, prompt) of a file, kinds in turns; of prompts with several turns the
    first. Raises TrainingError if the data folder has no such file."""
    path = None if job.data is None else job.data / "eval" / file
    if path is None or not path.is_file():
        raise TrainingError(f"The data folder has no eval/{file}: give --data one that has.", "data.file")
    kinds: dict[str, list[tuple[str, str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        kind, text = (row["category"], row["turns"][0]) if "turns" in row else (row["kind"], row["prompt"])
        kinds.setdefault(kind, []).append((kind, text))
    turns = zip_longest(*(kinds[kind] for kind in sorted(kinds)))
    return [one for turn in turns for one in turn if one is not None][:count]


def figures(runs: list[tuple[str, Totals]]) -> dict[str, Any]:
    """Return the figures of a method from the totals of its runs, each with the kind of its prompt."""
    whole = sum((totals for _, totals in runs), Totals())
    kinds = sorted({kind for kind, _ in runs})
    pairs = [(totals.tokens, totals.rounds) for _, totals in runs]
    return {
        "tokens_per_pass": _ratio(pairs),
        "interval": interval(pairs),
        "nodes": round(whole.drafted / max(1, whole.rounds), 2),
        "by_kind": {kind: _ratio([(t.tokens, t.rounds) for one, t in runs if one == kind]) for kind in kinds},
        "by_depth": [round(hit / tried, 3) for tried, hit in whole.by_position if tried],
        "by_place": {
            name: round(value, 3) for name, value in lengths_by_place(whole.by_place).items() if value
        },
    }


def interval(pairs: list[tuple[int, int]]) -> list[float]:
    """Return the 95 % bootstrap interval over prompts of tokens per pass; pairs: (tokens, passes)."""
    rng = random.Random(0)
    values = sorted(_ratio(rng.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    return [values[int(0.025 * RESAMPLES)], values[int(0.975 * RESAMPLES)]]


def _ratio(pairs: list[tuple[int, int]]) -> float:
    return round(sum(tokens for tokens, _ in pairs) / max(1, sum(passes for _, passes in pairs)), 3)


def section(found: dict[str, Any], suite: str) -> list[str]:
    """Return the Markdown of a suite's figures: a table of tokens per pass, and the picture."""
    title, what = SUITES[suite]
    size = "" if suite == "general" else f" --size {suite}"
    temperatures = sorted({t for method in found["methods"].values() for t in method}, key=float)
    lines = [
        f"### {title}",
        "",
        f"Tokens per target pass on {found['prompts']} {what}, at most {found['new_tokens']} tokens each, with the "
        f"95 % interval over prompts; nodes: drafted per pass. By `python -m specviz.training general{size} --ship`.",
        "",
        f"| method | nodes | {' | '.join(f'temperature {t}' for t in temperatures)} |",
        f"|{'---|' * (2 + len(temperatures))}",
    ]
    first = temperatures[0]
    order = sorted(found["methods"].items(), key=lambda one: -one[1][first]["tokens_per_pass"])
    for title, method in order:
        cells = [
            "{tokens_per_pass:.2f} ({interval[0]:.2f} to {interval[1]:.2f})".format(**method[t])
            for t in temperatures
        ]
        lines.append(f"| {title} | {method[first]['nodes']:.1f} | {' | '.join(cells)} |")
    return [*lines, "", f"![]({figures_file(suite).stem}.svg)"] if has_picture(found["methods"]) else lines


def picture(found: dict[str, Any]) -> str:
    """Return an SVG of three charts at the lowest temperature: tokens per pass by kind of prompt, acceptance by
    place in the draft, and tokens per pass by place in the answer."""
    first = {title: method[min(method, key=float)] for title, method in found.items()}
    charts = [
        ("Tokens per pass by kind of prompt", {title: one["by_kind"] for title, one in first.items()}),
        (
            "Acceptance by place in the draft",
            {title: dict(enumerate(one["by_depth"], 1)) for title, one in first.items()},
        ),
        ("Tokens per pass by place in the answer", {title: one["by_place"] for title, one in first.items()}),
    ]
    legend = "".join(
        f'<text x="{56 + 150 * i}" y="18" fill="{COLOURS[i % len(COLOURS)]}">{escape(title)}</text>'
        for i, title in enumerate(first)
    )
    # Kinds have no order, so their points are not joined.
    parts = [_chart(title, rows, 40 + 220 * i, joined=i > 0) for i, (title, rows) in enumerate(charts)]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 700" role="img" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#3f3f46">'
        f'<rect width="800" height="700" fill="#ffffff"/>{legend}{"".join(parts)}</svg>\n'
    )


def _chart(title: str, rows: dict[str, dict[Any, float]], top: int, joined: bool) -> str:
    """Return one chart: points for each method, from 0 upwards. joined: with a line through them."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    most = max((value for row in rows.values() for value in row.values()), default=1.0) or 1.0
    step, foot = 730 / max(1, len(names)), top + 170

    def place(name: Any, value: float) -> tuple[float, float]:
        return 56 + step * (names.index(name) + 0.5), foot - 140 * value / most

    parts = [f'<text x="56" y="{top + 14}" font-weight="600">{escape(title)}</text>']
    for value in (0.0, most / 2, most):
        y = foot - 140 * value / most
        parts.append(f'<line x1="56" x2="786" y1="{y:.1f}" y2="{y:.1f}" stroke="#d4d4d8"/>')
        parts.append(f'<text x="48" y="{y + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for name in names:
        x = place(name, 0)[0]
        label = escape(str(name))
        parts.append(f'<text x="{x:.1f}" y="{foot + 16}" text-anchor="middle" font-size="8">{label}</text>')
    for colour, row in zip(COLOURS * len(rows), rows.values()):
        points = [place(name, value) for name, value in row.items()]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        if joined:
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return "".join(parts)
