"""`python -m specviz.training scaling`: acceptance of a target's drafts during training, and scaling fits
to it."""

from __future__ import annotations

import json

from ..core.errors import code_of
from ..evidence.scaling import FIGURES, ScalingError, drafts_in, report, short_number
from .job import Job, TrainingError


def answer(job: Job, plain: bool) -> str:
    """Return the report on how acceptance grew with training, as text, or as JSON if ``plain`` is False.
    Raises TrainingError."""
    try:
        found = report(job.target, drafts_in(job.work / "models", job.shipped))
    except ScalingError as error:
        raise TrainingError(str(error), code_of(error)) from None
    return text(found) if plain else json.dumps(found, indent=2, ensure_ascii=False)


TEXTS = {
    "no_drafts": "No draft of {target} has points of its training.",
    "too_few": "Too few points for the other fits; these commands create them:",
}


def text(found: dict) -> str:
    """Return a report of evidence.scaling as text: a table of points, then a sentence per fit."""
    lines = [
        f"{'draft':32} {'parameters':>10} {'tokens':>8}  "
        + "  ".join(f"{name:>13}" for name in FIGURES.values())
    ]
    lines += [
        f"{one['name']:32} {short_number(one['parameters']):>10} {short_number(p['tokens']):>8}  "
        + "  ".join(f"{p[name]:13.3f}" if name in p else f"{'':13}" for name in FIGURES)
        for one in found["drafts"]
        for p in one["points"]
    ]
    lines = (
        [line.rstrip() for line in lines]
        if found["drafts"]
        else [TEXTS["no_drafts"].format(target=found["target"])]
    )
    needs = [TEXTS["too_few"], *(f"  {one}" for one in found["missing"])]
    fitted = [
        line
        for figure, name in FIGURES.items()
        if found["figures"][figure]["said"]
        for line in (f"At {name}:", *(f"  {one}" for one in found["figures"][figure]["said"]))
    ]
    return "\n".join([*lines, "", *fitted, *found["began"], *(needs if found["missing"] else [])])
