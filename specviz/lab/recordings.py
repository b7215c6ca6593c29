"""The shipped recordings: traces under assets/traces, described in index.yaml, and one of each claim that is
shown (``CLAIMS``), which the list leaves out."""

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
CLAIMS = "claims"  # folder below it; a recording there is named claims/KEY-NUMBER
LARGE = "large"  # the recording of a large model on an accelerator, where somebody has made one
LARGEST = 20 * 2**20  # bytes of text, as for an imported trace


def library(folder: Path = FOLDER, name: Any = None) -> list[dict[str, Any]]:
    """Return [{name, title, about, temperature, layout, panel, bytes}] of every recording in the order of
    index.yaml; undescribed ones last. layout, panel: where the board opens (Watch or Race, and a tab of the
    inspector), empty for its own choice."""
    described, files = _index(folder), _files(folder)
    listed = [n for n in files if not n.startswith(f"{CLAIMS}/")]
    order = [*(n for n in described if n in listed), *sorted(n for n in listed if n not in described)]
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
            f"There is no recording of that name; there are {_listed(files) or 'none'}.",
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


def claim_recording(key: str, number: int, folder: Path = FOLDER) -> str | None:
    """Return the name of the recording of a method's claim, None if there is none."""
    name = f"{CLAIMS}/{key}-{number}"
    return name if (folder / f"{name}.jsonl.gz").is_file() else None


def large_recording(folder: Path = FOLDER) -> dict[str, str] | None:
    """Return {name, title} of the recording named LARGE, None if there is none."""
    return next(
        ({key: row[key] for key in ("name", "title")} for row in library(folder) if row["name"] == LARGE),
        None,
    )


def _listed(files: dict[str, Path]) -> str:
    return ", ".join(sorted(name for name in files if not name.startswith(f"{CLAIMS}/")))


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    found = sorted(
        [*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz"), *folder.glob(f"{CLAIMS}/*.jsonl.gz")]
    )
    names = [path.relative_to(folder).as_posix().removesuffix(".gz").removesuffix(".jsonl") for path in found]
    return dict(zip(names, found))


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
