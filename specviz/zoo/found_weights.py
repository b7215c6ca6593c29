"""Find heads and draft models that recipes trained for a target by their config.json, without entries in
models.yaml.

They are in ``<target's folder>/heads/<kind>`` or in a folder next to the target's, or next to its GGUF file. Their config.json
contains ``{"specviz": {"kind": "glide", "target": "SmolLM2-135M-Instruct"}}``; the methods declare the
kinds (core.method.Trained)."""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..checkpoints.split import HEADS
from ..methods import trained_parts

log = logging.getLogger(__name__)

MARK = "specviz"
OTHER_DRAFT = "other_draft"  # a draft model with a tokenizer of its own: no method's, so declared here
FOLDER = HEADS


def mark(kind: str, target: str) -> dict[str, Any]:
    """Return the fields that a recipe adds to config.json so that the weights are found."""
    return {MARK: {"kind": kind, "target": target}}


def found_weights(target: str, folder: Path) -> list[tuple[str, str, str, Path]]:
    """Return (name, role, kind, folder) of every head and draft model that was trained for a target.
    target: its name; folder: its checkpoint folder."""
    own: list[tuple[Path, str, str]] = []
    if folder.suffix == ".gguf":
        folder = folder.parent
        own = _marked(folder)
    inside = [(f"{target}-{place.name}", kind, place) for place, kind, _ in _marked(folder / FOLDER)]
    beside = [
        (place.name, kind, place)
        for place, kind, whose in [*own, *_marked(folder.parent)]
        if whose in (target, folder.name)
    ]
    return [(name, role, kind, place) for name, kind, place in inside + beside if (role := _role(kind))]


def _role(kind: str) -> str:
    """Return the role of a kind in models.yaml, empty for a kind that no method declares."""
    if kind == OTHER_DRAFT:
        return OTHER_DRAFT
    part = trained_parts().get(kind)
    return "" if part is None else "head" if part.network else "draft"


def _marked(parent: Path) -> list[tuple[Path, str, str]]:
    """Return (folder, kind, target) of each folder in ``parent`` whose config.json is marked."""
    found = []
    for path in sorted(parent.glob("*/config.json")) if parent.is_dir() else ():
        try:
            stat = path.stat()
            kind, target = _read_mark(path, stat.st_mtime_ns, stat.st_size)
        except OSError:
            continue
        if kind:
            found.append((path.parent, kind, target))
    return found


@lru_cache(maxsize=1024)
def _read_mark(path: Path, changed: int, size: int) -> tuple[str, str]:
    """Return (kind, target), empty where the file is unmarked or unreadable; cached until the file
    changes."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))[MARK]
        return str(found["kind"]), str(found.get("target", ""))
    except (OSError, ValueError, RecursionError) as error:
        log.warning("%s is skipped: %s", path, error)
    except (TypeError, KeyError, AttributeError):  # a config.json without the mark
        pass
    return "", ""
