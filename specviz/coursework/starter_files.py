"""The files of an exercise: `starter.py`, a README and a notebook, all from one text in starters/.

A text is Markdown with Python cells. The notebook's cells have the metadata of nbgrader: the first cell and those
to be written are graded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ..trace.file_writer import write_file
from .exercise import Exercise
from .messages import TEXTS

PLACE = Path(__file__).parent / "starters"
CELL = re.compile(r"```python\n(.*?)```\n?", re.DOTALL)
MARK = "# %%"
NAME = re.compile(r"[\w .@+-]{1,60}")
CHECK = "Check it: `specviz labs check {file}`, also from a cell: `!specviz labs check {file}`.\n"


class CourseworkError(ValueError):
    """An exercise cannot be started, or a submission cannot be read."""

    def __init__(self, code: str, **values: Any):
        super().__init__(TEXTS[code].format(**values))
        self.code = code


def text_of(exercise: Exercise, student: str) -> str:
    """Return the exercise's text with the student's numbers. Raises CourseworkError for a name with other
    characters than letters, digits and `. @ + -`."""
    if not NAME.fullmatch(student):
        raise CourseworkError("start.name", name=student[:60])
    text = (PLACE / f"{exercise.key}.md").read_text(encoding="utf-8")
    for name, value in {"STUDENT": student, **exercise.numbers(student)}.items():
        text = text.replace(f"@@{name}@@", value.strip() if isinstance(value, str) else json.dumps(value))
    return text


def cells_of(text: str) -> list[tuple[str, str]]:
    """Return the cells of a text in order: ("markdown" | "code", source)."""
    cells, at = [], 0
    for found in CELL.finditer(text):
        cells += [("markdown", text[at : found.start()].strip()), ("code", found[1].rstrip())]
        at = found.end()
    return [cell for cell in [*cells, ("markdown", text[at:].strip())] if cell[1]]


def script(text: str, key: str) -> str:
    """Return the cells as a Python file: code as it is, text as comments."""
    parts = []
    for kind, source in cells_of(text):
        lines = source if kind == "code" else "\n".join(f"# {line}".rstrip() for line in source.splitlines())
        parts.append(f"{MARK}{' [markdown]' if kind == 'markdown' else ''}\n{lines}\n")
    return f"# Exercise: {key}\n" + "\n".join(parts)


def notebook(text: str, key: str) -> str:
    """Return the cells as a notebook, with a last one that checks it."""
    cells = []
    for number, (kind, source) in enumerate(cells_of(text)):
        graded = kind == "code"
        meta = {
            "schema_version": 3,
            "grade_id": f"{key}-{number}",
            "grade": False,
            "solution": graded,
            "locked": not graded,
            "task": False,
        }
        cells.append(_cell(kind, source, f"c{number}", {"nbgrader": meta}))
    check = "# Save the notebook first.\n" + f"!specviz labs check {key}.ipynb"
    tested = {
        "schema_version": 3,
        "grade_id": f"{key}-check",
        "grade": True,
        "solution": False,
        "locked": True,
        "points": 1,
        "task": False,
    }
    cells.append(_cell("code", check, "check", {"nbgrader": tested}))
    kernel = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "specviz": {"exercise": key},
    }
    return (
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}, indent=1) + "\n"
    )


def _cell(kind: str, source: str, name: str, metadata: dict[str, Any]) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": name,
        "metadata": metadata,
        "source": source.splitlines(keepends=True),
    }
    return cell | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def start(exercise: Exercise, student: str, folder: Path) -> list[Path]:
    """Write the files of an exercise into a folder, which is created. Raises CourseworkError if one of them exists;
    then nothing is written."""
    text = text_of(exercise, student)
    files = {
        folder / "starter.py": script(text, exercise.key),
        folder / "README.md": text + "\n" + CHECK.format(file="starter.py"),
        folder / f"{exercise.key}.ipynb": notebook(text, exercise.key),
    }
    for path in files:
        if path.exists():
            raise CourseworkError("start.exists", path=path)
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        write_file(path, content)
    return list(files)


def read_submission(path: Path) -> str:
    """Return the code of a Python file or of a notebook's code cells. Raises CourseworkError."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".ipynb":
            return text
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CourseworkError(
            "check.read", path=path, why=getattr(error, "strerror", None) or "it is not a submission"
        ) from None
    return "\n\n".join(
        "\n".join(line for line in one.splitlines() if line[:1] not in "!%") for one in sources
    )
