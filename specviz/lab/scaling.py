"""How acceptance grew while the shipped drafts were trained, and with their sizes: points and laws, a target at a time."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import ASSETS
from ..evidence.scaling import FIGURES, ScalingError, drafts_in, report
from . import LabError


def scaling(name: Any = None, folder: Path = ASSETS / "models") -> dict[str, Any]:
    """{figures: {name: title}, targets: [report]}: of every target that a draft here carries points of. ``name``: the target whose
    report comes first; where it is a shipped one without points, its report says which commands make them. Raises LabError."""
    try:
        drafts = drafts_in(folder)
    except ScalingError as error:
        raise LabError(str(error)) from None
    known = {one["target"]: 0 for one in drafts}
    if isinstance(name, str) and (name in known or name in {path.parent.name for path in folder.glob("*/config.json")}):
        known = {name: 0} | known
    return {"figures": FIGURES, "targets": [report(target, drafts) for target in known]}
