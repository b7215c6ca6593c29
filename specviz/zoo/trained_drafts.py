"""Draft models trained by a paper's method: find those of a target in models.yaml, by kind.

An entry has ``role: draft``, ``for: <target>`` and ``kind``. A method requests it as ``draft:<kind>``,
independently of the draft model with which the target is paired. The methods declare the kinds
(core.method.Trained); a recipe has the name of its kind.
"""

from __future__ import annotations

from pathlib import Path

from ..checkpoints.errors import shown
from ..methods import draft_kinds
from .registry import Register, ZooError, clone_hint

ROLE = "draft:"


def roles_of(book: Register, name: str, folder: Path) -> dict[str, Path]:
    """Return {role: folder of the draft of that kind} for a target, given by its name or folder; kinds
    without weights are left out. Raises ZooError for an unknown kind."""
    for entry in book.entries.values():
        if entry.role == "draft" and entry.kind and entry.kind not in draft_kinds():
            raise ZooError(
                f"models.yaml calls {shown(entry.name)} a draft of kind {shown(entry.kind)!r}; "
                f"there are {', '.join(draft_kinds())}.",
                "models_yaml.draft_kind",
            )
    found: dict[str, Path] = {}
    for entry in book.made_for(name, folder):
        if entry.role == "draft" and entry.kind and entry.path and (entry.path / "config.json").is_file():
            found.setdefault(f"{ROLE}{entry.kind}", entry.path)
    return found


NEEDED = (
    "needs a {kind} draft model trained for {name}; `python -m specviz.training {kind} --ship --target NAME` trains one for an "
    "embedded target"
)


def missing_draft_message(kind: str, name: str) -> str:
    """Return the end of the error message for a missing draft model of this kind ("needs a ..."). name: the
    target's name."""
    return NEEDED.format(kind=kind, name=name) + clone_hint()
