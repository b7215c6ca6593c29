"""Measure every trained drafter on the real engine: each catalogue method that drafts with one of this
project's models.

Methods run with default knobs on held-out prompts of each task, greedily and at temperature 1. Measured:
block efficiency, acceptance by position, nodes per round, and speed relative to plain decoding, interleaved
in one run. Trees of different sizes are not comparable, so every method with a knob for the number of nodes
also runs with an equal number of nodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from .. import ROOT, zoo
from ..core import Method, Sampling
from ..evidence.benchmark import CatalogueRunner, Cell, measure, quartiles
from ..evidence.prompt_suites import Item
from ..methods import catalogue, trained_parts
from ..run.session import Session
from ..zoo.registry import ANY, MADE
from . import data
from .files import write_text
from .job import Job, TrainingError

MODES = {"greedy": Sampling(0.0), "sampled": Sampling(1.0)}
TITLES = {"greedy": "Greedy", "sampled": "Temperature 1"}
HEADER = [
    "| task | block efficiency | nodes a round | speed-up | accepted at depth 1, 2, ... |",
    "| --- | --- | --- | --- | --- |",
]
Cells = dict[tuple[str, str], Cell]


def run(job: Job, hparams: dict) -> dict[str, Any]:
    """Measure every trained drafter of the job's target. Return {"methods": {key: {title, model, "greedy"
    and "sampled": {task or "mean": figures}, equal}}, "skipped": {key: reason}, "equal_nodes": nodes per
    tree in the figures ``equal``}."""
    with use_work_models(job):
        loaded = zoo.load(job.target, device=job.device)
        items = prompts(job, hparams)
        chosen, skipped = {}, {}
        for method in methods_to_measure(hparams):
            kinds = (
                {"draft"}
                if method.key in hparams["with_draft"]
                else {need.partition(":")[2] for need in method.needs}
            )
            if job.report_kinds and not kinds & set(job.report_kinds):
                continue
            why = loaded.unsupported_reason(method)
            chosen |= {} if why else {method.key: method}
            skipped |= {method.key: why} if why else {}
        found = {
            key: {"title": method.title, "model": model_of(loaded, method)} for key, method in chosen.items()
        }
        for mode, probs in MODES.items():
            cells = run_methods(
                loaded, chosen, {}, items, hparams, probs, hparams["repeats"] if job.speed else 0
            )
            for key in chosen:
                found[key][mode] = figures_by_task(cells, key)
        equal = {"nodes": hparams["equal_nodes"]}
        sized = {
            key: method
            for key, method in chosen.items()
            if any(knob.name == "nodes" for knob in method.knobs)
        }
        cells = run_methods(loaded, sized, equal, items, hparams, MODES["greedy"], 0)
        for key in sized:
            found[key]["equal"] = figures_by_task(cells, key)["mean"]
        return {
            "methods": found,
            "skipped": skipped,
            "equal_nodes": equal["nodes"],
            "machine": loaded.facts["env"],
        }


def methods_to_measure(hparams: dict) -> list[Method]:
    """Return the methods to measure: exact ones that draft with trained heads or trained draft models, and
    a few that use the ordinary draft model."""
    return [
        method
        for method in catalogue().values()
        if method.exactness == "exact"
        and (
            any(need.startswith(("head:", "draft:")) for need in method.needs)
            or method.key in hparams["with_draft"]
        )
    ]


def weights_need(method: Method) -> str | None:
    """Return the requirement that names the trained weights of a method ("head:eagle", "draft:pard"); with
    several, those that the method's own recipe trains. None: it uses the ordinary draft model."""
    needs = [need for need in sorted(method.needs) if need.startswith(("head:", "draft:"))]
    own = {part.kind for part in method.trains}
    return next((need for need in needs if need.partition(":")[2] in own), needs[0] if needs else None)


def model_of(loaded: zoo.Loaded, method: Method) -> str:
    """Return the name of the model folder whose weights a method drafts with."""
    places = loaded.role_folders | {f"head:{kind}": place for kind, place in loaded.heads.folders.items()}
    need = weights_need(method)
    place = places[need] if need else loaded.draft_folder
    assert place is not None, f"{method.key} drafts with no model"
    return place.name


def prompts(job: Job, hparams: dict) -> list[Item]:
    """Return the first held-out prompts of each task that leave enough of the context for an answer."""
    rows = data.load(job.data, "heldout", hparams["own_rows"])
    short = [row for row in rows if len(row.prompt) <= hparams["prompt_characters"]]
    return [
        Item(task, row.prompt)
        for task in data.TASKS
        for row in [r for r in short if r.task == task][: hparams["prompts_a_task"]]
    ]


def run_methods(
    loaded: zoo.Loaded,
    methods: dict[str, Method],
    knobs: dict,
    items: list[Item],
    hparams: dict,
    probs: Sampling,
    repeats: int,
) -> Cells:
    """Run methods on prompts; return their results by (method key, task). probs: the sampling settings;
    repeats: timed runs of each prompt, each paired with a run of plain decoding; 0: acceptance is counted
    and nothing is timed."""
    runners = {key: CatalogueRunner(Session(loaded, method, knobs, probs)) for key, method in methods.items()}
    length = hparams["run_tokens"]
    if repeats:
        plain = next(iter(catalogue().values()))
        baseline = {plain.key: CatalogueRunner(Session(loaded, plain, None, probs))}
        cells, interrupted = measure(baseline | runners, items, repeats, length, probs)
        if interrupted:
            raise KeyboardInterrupt
        return cells
    cells: Cells = {}
    for count, item in enumerate(items):
        for key, runner in runners.items():
            result = runner(item.prompt, replace(probs, seed=probs.seed + count), length)
            cells.setdefault((key, item.task), Cell()).totals += result.totals
    return cells


def figures_by_task(cells: Cells, key: str) -> dict[str, dict]:
    """Return {task or "mean": figures} of a method; "mean" is the mean over tasks. Raises TrainingError if
    no prompt was measured."""
    found = {task: cell_figures(cell) for (who, task), cell in cells.items() if who == key}
    if not found:
        raise TrainingError(
            "There are no held-out prompts short enough: raise prompt_characters in report.yaml.",
            "training.no_prompts",
        )
    names = [name for name, value in next(iter(found.values())).items() if not isinstance(value, list)]
    mean: dict[str, Any] = {name: _mean([row[name] for row in found.values()]) for name in names}
    depth = max(len(row["by_position"]) for row in found.values())
    mean["by_position"] = [
        _mean([row["by_position"][i] for row in found.values() if i < len(row["by_position"])])
        for i in range(depth)
    ]
    return found | {"mean": mean}


def cell_figures(cell: Cell) -> dict[str, Any]:
    """Return {block_efficiency, acceptance_rate, nodes, speedup, by_position} of one method on one task.
    nodes: per round; speedup: median over the pairs with plain decoding, None without timing."""
    totals, known = cell.totals, cell.totals.metrics()
    middle, efficiency = quartiles(cell.ratios)[1], known["block_efficiency"]
    assert efficiency is not None  # every run generates tokens
    return {
        "block_efficiency": round(efficiency, 4),
        "acceptance_rate": known["acceptance_rate"] and round(known["acceptance_rate"], 4),
        "nodes": round(totals.drafted / totals.rounds, 2),
        "speedup": middle and round(middle, 3),
        "by_position": [round(hit / tried, 4) for tried, hit in totals.by_position if tried],
    }


def _mean(values: list) -> float | None:
    return None if None in values else round(sum(values) / len(values), 4)


# --- the work folder's models as the app would name them -----------------------------------------------------------------
@contextmanager
def use_work_models(job: Job) -> Iterator[Path]:
    """Context manager: inside the block, names of models.yaml mean the models in the work folder. Writes
    ``<work>/models.yaml`` and sets SPECVIZ_MODELS to it."""
    path = job.folder() / "models.yaml"
    write_text(path, models_yaml_text(job))
    before = os.environ.get("SPECVIZ_MODELS")
    os.environ["SPECVIZ_MODELS"] = str(path)
    zoo.forget()  # weights may have changed under the same path
    try:
        yield path
    finally:
        os.environ.pop("SPECVIZ_MODELS") if before is None else os.environ.update(SPECVIZ_MODELS=before)


def models_yaml_text(job: Job) -> str:
    """Return the text of models.yaml in which paths of embedded models are replaced by those of this job."""
    entries = yaml.safe_load((ROOT / "models.yaml").read_text(encoding="utf-8"))
    kept = {}
    for name, entry in entries["models"].items():
        with suppress(TrainingError):
            kept |= (
                {name: entry | {"path": str(job.model(Path(entry["path"]).name).resolve())}}
                if "path" in entry
                else {}
            )
    for target in [name for name, entry in kept.items() if entry.get("role", "target") == "target"]:
        kept |= _made_for(replace(job, target=target))
    kept = {
        name: entry for name, entry in kept.items() if entry.get("for", name) in kept
    }  # its target is neither made nor shipped
    own = {
        name for name, entry in kept.items() if Path(entry["path"]).parent == (job.work / "models").resolve()
    }
    for name, entry in kept.items():  # paired only if both or neither are made by this job
        if entry.get("draft") not in kept or (name in own) != (entry["draft"] in own):
            entry.pop("draft", None)
        if entry.get("middle") not in kept:
            entry.pop("middle", None)

    def at(path: str) -> str:
        made = job.work / "stores" / Path(path).name
        return str(made if made.is_dir() else ROOT / path)

    stores = {
        name: {of: at(path) for of, path in places.items() if of in kept or of == ANY}
        if isinstance(places, dict)
        else at(places)
        for name, places in entries.get("stores", {}).items()
    }
    default = entries["default"] if entries["default"] in kept else job.target
    return yaml.safe_dump(entries | {"default": default, "models": kept, "stores": stores}, sort_keys=False)


def _made_for(job: Job) -> dict[str, dict[str, str]]:
    """Return entries of models.yaml for everything that was trained for a job's target, in its work folder
    or shipped."""
    found = {}
    for kind in (*trained_parts(), "other-draft"):
        with suppress(TrainingError):
            part, place = trained_parts().get(kind), job.model(job.model_name(kind)).resolve()
            role = (
                {"role": "other_draft"}
                if part is None
                else {"role": "head" if part.network else "draft", "kind": kind}
            )
            found[job.model_name(kind)] = {
                "path": str(place),
                "for": job.target,
                "about": part.about if part else "",
                "licence": MADE,
            } | role
    return {name: {key: value for key, value in entry.items() if value} for name, entry in found.items()}


# --- for the cards -------------------------------------------------------------------------------------------------------
def table(found: dict[str, Any], model: str) -> str:
    """Return a model's figures as Markdown: one table for each method and mode (greedy, sampled)."""
    lines = []
    for method in found["methods"].values():
        for mode in MODES if method["model"] == model else ():
            lines += [f"### {method['title']}, {TITLES[mode].lower()}, on the engine", "", *HEADER]
            for task, row in method[mode].items():
                depths = " ".join(f"{share:.2f}" for share in row["by_position"])
                lines.append(
                    f"| {task} | {row['block_efficiency']:.2f} | {row['nodes']:.1f} | {_times(row['speedup'])} | {depths} |"
                )
            lines.append("")
    return "\n".join(lines)


def summary(found: dict[str, Any]) -> str:
    """Return a Markdown table with one row per drafter, each the mean over the tasks."""
    lines = [
        "### Drafters, means over six tasks",
        "",
        f"| method | greedy | speed-up | temperature 1 | speed-up | greedy, {found['equal_nodes']} nodes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for method in found["methods"].values():
        greedy, sampled = method["greedy"]["mean"], method["sampled"]["mean"]
        equal = f"{method['equal']['block_efficiency']:.2f}" if "equal" in method else "no tree"
        lines.append(
            f"| {method['title']} | {greedy['block_efficiency']:.2f} | {_times(greedy['speedup'])} | "
            f"{sampled['block_efficiency']:.2f} | {_times(sampled['speedup'])} | {equal} |"
        )
    lines += [
        "",
        "Block efficiency: tokens committed a target pass, the target's own included. Speed-up: plain decoding's seconds a "
        f"token over the method's, interleaved in one run; {found['machine']['machine']}.",
        "",
    ]
    lines += [f"Not measured: {why}" for why in found["skipped"].values()]
    return "\n".join(lines)


def _times(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}x"
