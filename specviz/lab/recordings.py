"""The shipped recordings: traces under assets/traces, described in index.yaml."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import yaml

from .. import ASSETS
from . import LabError

log = logging.getLogger(__name__)

FOLDER = ASSETS / "traces"
LARGEST = 20 * 2**20  # bytes of text, as for an imported trace


def library(folder: Path = FOLDER, name: Any = None) -> list[dict[str, Any]]:
    """Return [{name, title, about, temperature, layout, panel, bytes}] of every recording in the order of
    index.yaml; undescribed ones last. layout, panel: where the board opens (Watch or Race, and a tab of the
    inspector), empty for its own choice."""
    described, files = _index(folder), _files(folder)
    order = [*(n for n in described if n in files), *sorted(n for n in files if n not in described)]
    return [
        {
            "name": n,
            "title": str(entry.get("title") or n),
            **{key: str(entry.get(key) or "") for key in ("about", "layout", "panel")},
            "temperature": float(entry.get("temperature") or 0),
            "bytes": files[n].stat().st_size,
        }
        for n in order
        for entry in (described.get(n, {}),)
    ]


def library_trace(name: Any = None, folder: Path = FOLDER) -> str:
    """Return a recording as JSON Lines, with its title and text of index.yaml as ``about`` of each header.
    Raises LabError."""
    files = _files(folder)
    if not isinstance(name, str) or name not in files:  # only names from the list, never a path
        raise LabError(
            f"There is no recording of that name; there are {', '.join(sorted(files)) or 'none'}.",
            "recording.missing",
        )
    path = files[name]
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise LabError(f"The recording {name} is too large.", "recording.large")
        described = _index(folder).get(name, {})
        about = (
            {"title": str(described.get("title") or name), "text": str(described["about"])}
            if described.get("about")
            else None
        )
        return (
            data.decode("utf-8")
            if about is None
            else "\n".join(_with_about(line, about) for line in data.decode("utf-8").split("\n"))
        )
    except (OSError, EOFError, UnicodeDecodeError):
        raise LabError(f"The recording {name} cannot be read.", "recording.read") from None


def _with_about(line: str, about: dict[str, str]) -> str:
    """Return a line of a trace, with ``about`` if it is a header."""
    if '"header"' not in line:
        return line
    try:
        record = json.loads(line)
    except ValueError:  # the page reports what is wrong with it
        return line
    header = isinstance(record, dict) and record.get("type") == "header"
    return json.dumps(record | {"about": about}, ensure_ascii=False) if header else line


def _files(folder: Path) -> dict[str, Path]:
    found = [*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")] if folder.is_dir() else []
    return {path.name.removesuffix(".gz").removesuffix(".jsonl"): path for path in sorted(found)}


def _index(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        described = yaml.safe_load((folder / "index.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError) as error:
        log.warning("the titles of %s are not read: %s", folder, error)
        return {}
    return (
        {str(k): v for k, v in described.items() if isinstance(v, dict)}
        if isinstance(described, dict)
        else {}
    )
