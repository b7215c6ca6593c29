"""Acceptance rate of the shipped drafts over training tokens and model size: points and fits per target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import ASSETS
from ..core.errors import code_of
from ..evidence.scaling import FIGURES, ScalingError, drafts_in, report
from . import LabError


def scaling(name: Any = None, folder: Path = ASSETS / "models") -> dict[str, Any]:
    """Return {figures: {name: title}, targets: [report]} for every target with points. ``name``: the target
    whose report comes first; for a shipped target without points the report lists the commands that create
    them. Raises LabError."""
    try:
        drafts = drafts_in(folder)
    except ScalingError as error:
        raise LabError(str(error), code_of(error)) from None
    known = {one["target"]: 0 for one in drafts}
    if isinstance(name, str) and (
        name in known or name in {path.parent.name for path in folder.glob("*/config.json")}
    ):
        known = {name: 0} | known
    return {"figures": FIGURES, "targets": [report(target, drafts) for target in known]}
