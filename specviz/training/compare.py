"""Compare the trained drafters of a target by the figures in their model cards.

With `--ship`: read the shipped cards and write docs/trained.md for every embedded target. Otherwise: read
the cards of the work folder and print the table. Drafters without weights or figures are listed below it.
`all` does not run this recipe; `report` writes the figures into the cards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from .. import ROOT
from ..core import Method
from . import drafters, general
from .files import write_text
from .job import Job

HEAD = """# The trained drafters side by side

Generated from the model cards by `python -m specviz.training compare --ship`. A test checks that the page is up to date.

- tokens per pass: mean accepted length, the committed tokens per target pass with the bonus token, on held-out prompts, default knobs.
- greedy, equal nodes: the same with {nodes} nodes, for methods that have a knob for the number of nodes.
- speed-up: plain decoding's seconds per token divided by the method's, interleaved in one run.
- minutes trained, M tokens: of the last training run; methods that use the same model share it.
- Domino, DFlash2, LiLiCorr, TreeFlash and TAPS correct DFlash, not DSpark, which got its weights for the chat model later.
"""
COLUMNS = (
    "method",
    "model",
    "M parameters",
    "minutes trained",
    "M tokens",
    "tokens per pass, greedy",
    "accepted at depth 1, 2, ...",
    "nodes per round",
    "speed-up",
    "tokens per pass, temperature 1",
    "speed-up",
    "greedy, equal nodes",
)
SIZE = re.compile(r"([\d.]+) (?:million|M) parameters")
TRAINED = re.compile(r"^Last training run: \d+ steps, ([\d.]+) M answer tokens, ([\d.]+) minutes", re.M)
NODES = re.compile(r"\| greedy, (\d+) nodes \|$", re.M)
NOTHING = "-"


@dataclass(frozen=True)
class Drafter:
    """One row of the table: a method and the model that it drafts with. has_weights: whether the model's
    weights exist; cells: the row's values in the order of COLUMNS, None without weights or figures."""

    title: str
    model: str
    has_weights: bool
    cells: tuple[str, ...] | None


def run(job: Job) -> Path:
    """Write the comparison page; return its path."""
    hparams = job.hparams("report")
    path = ROOT / "docs" / "trained.md" if job.ship else job.folder() / "trained.md"
    write_text(path, page(job, hparams))
    return path


def page(job: Job, hparams: dict) -> str:
    """Return the comparison of all trained drafters, in Markdown."""
    found = {target: drafters_of(replace(job, target=target), hparams) for target in targets(job)}
    parts = [HEAD.format(nodes=hparams["equal_nodes"])]
    for target, rows in found.items():
        if any(row.has_weights for row in rows) or len(found) == 1:  # small targets have no trained drafters
            parts += [f"## {target}", "", *table(rows), ""]
        for suite, measured in general.shipped().items() if job.ship else ():
            parts += [*general.section(measured, suite), ""] if measured["target"] == target else []
    return "\n".join(parts).rstrip() + "\n"


def targets(job: Job) -> list[str]:
    """Return the names of the embedded targets that have a model card; without ``--ship`` only the job's
    target."""
    if not job.ship:
        return [job.target]
    card_text = yaml.safe_load((ROOT / "models.yaml").read_text(encoding="utf-8"))["models"]
    return [
        name
        for name, entry in card_text.items()
        if entry.get("role", "target") == "target" and card(job, name)
    ]


def drafters_of(job: Job, hparams: dict) -> list[Drafter]:
    """Return a row for every method that the report measures on a target: highest mean accepted length
    first, rows without figures last."""
    equal, rows = equal_nodes(card(job, job.target) or ""), []
    for method in drafters.methods_to_measure(hparams):
        name = job.model_name(kind_of(method))
        if kind_of(method) == "draft" and name != job.draft_name():
            continue  # the target is paired with a draft model of another name, whose own card has its figures
        card_text = card(job, name)
        figures = None if card_text is None else comparison_cells(method.title, name, card_text, equal)
        rows.append(Drafter(method.title, name, card_text is not None, figures))
    return sorted(rows, key=lambda row: -float(row.cells[5]) if row.cells else 0.0)


def kind_of(method: Method) -> str:
    """Return the kind of the model that a method drafts with ("draft", "eagle", ...), as recipes name it."""
    return (drafters.weights_need(method) or "draft").rpartition(":")[2]


def card(job: Job, name: str) -> str | None:
    """Return the text of a model's card; None if it has none."""
    place = job.shipped_folder(name) if job.ship else job.work / "models" / name
    if not all((place / one).is_file() for one in ("config.json", "README.md")):
        return None
    return (place / "README.md").read_text(encoding="utf-8")


def comparison_cells(title: str, name: str, card_text: str, equal: dict[str, str]) -> tuple[str, ...] | None:
    """Return a method's values in the order of COLUMNS, read from the text of its model's card; None if the
    card has no figures of this method. equal: as ``equal_nodes`` returns it."""
    greedy, sampled = (
        mean_row(card_text, f"### {title}, {mode.lower()}, on the engine")
        for mode in drafters.TITLES.values()
    )
    if greedy is None or sampled is None:
        return None
    size, trained = SIZE.search(card_text), TRAINED.search(card_text)
    tokens, minutes = trained.groups() if trained else (NOTHING, NOTHING)
    return (
        title,
        f"`{name}`",
        size.group(1) if size else NOTHING,
        minutes,
        tokens,
        greedy[0],
        greedy[3],
        greedy[1],
        greedy[2],
        sampled[0],
        sampled[2],
        equal.get(title, NOTHING),
    )


def mean_row(card_text: str, heading: str) -> list[str] | None:
    """Return [tokens per pass, nodes, speed-up, acceptance by depth] from the row "mean" of the table under
    a card's heading; None if it is missing."""
    _, _, rest = card_text.partition(f"{heading}\n")
    line = re.search(r"^\| mean \| (.+) \|$", rest.partition("\n#")[0], re.M)
    return line.group(1).split(" | ") if line else None


def equal_nodes(card_text: str) -> dict[str, str]:
    """Return {method title: tokens per pass with trees of equal size}, read from the text of the target's
    card."""
    found = NODES.search(card_text)
    if not found:
        return {}
    lines = card_text[found.end() :].split("\n")[2:]
    rows = [
        line.strip("| ").split(" | ")
        for line in lines[: next((i for i, line in enumerate(lines) if not line.startswith("|")), None)]
    ]
    return {row[0]: row[-1] for row in rows}


def table(rows: list[Drafter]) -> list[str]:
    """Return Markdown lines: a table of the methods with figures, then a list of the methods without."""
    lines = [f"| {' | '.join(row.cells)} |" for row in rows if row.cells]
    if lines:
        lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", *lines]
    for rest, why in (
        (
            [row for row in rows if row.has_weights and not row.cells],
            "Weights, but no figures in the card yet",
        ),
        ([row for row in rows if not row.has_weights], "No weights yet"),
    ):
        if rest:
            lines += [""] * bool(lines) + [
                f"{why}: {', '.join(f'{row.title} (`{row.model}`)' for row in rest)}."
            ]
    return lines
