"""Prompt suites: prompts by task, shipped or from a file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import yaml

from .. import ASSETS
from ..run.request import SessionError

SUITE = ASSETS / "prompts" / "bench.yaml"
LARGEST = 64 * 2**20  # maximum bytes of a suite


@dataclass(frozen=True)
class Item:
    """A prompt and its task. before: earlier user messages, which plain decoding answers before anything is
    timed; number: index in the suite from 1."""

    task: str
    prompt: str | list[dict[str, str]]
    before: tuple[str, ...] = ()
    number: int = field(default=0, compare=False)


def read_suites(files: Sequence[str | Path | None]) -> tuple[list[Item], str]:
    """Return the numbered items of several suite files, and a hash of their content. Raises SessionError."""
    items = [item for file in files for item in read_suite(file)]
    content = json.dumps([(item.task, item.before, item.prompt) for item in items])
    return [replace(item, number=n) for n, item in enumerate(items, 1)], sha256(content.encode()).hexdigest()[
        :16
    ]


def select_items(items: list[Item], tasks: Sequence[str] = (), most: int | None = None) -> list[Item]:
    """Return the items of these tasks (all if none is given), at most the first ``most`` of each task.
    Raises SessionError."""
    known = list(dict.fromkeys(item.task for item in items))
    for task in tasks:
        if task not in known:
            raise SessionError(f"The suite has no task {task!r}; it has {', '.join(known)}.", "suite.task")
    kept: dict[str, list[Item]] = {task: [] for task in tasks or known}
    for item in items:
        if item.task in kept and (most is None or len(kept[item.task]) < most):
            kept[item.task].append(item)
    return [item for task in kept.values() for item in task]


def suite_path(path: str | Path | None) -> Path:
    """Return the path of a suite; None or "ours" is the shipped one."""
    return SUITE if path is None or str(path) in ("", "ours") else Path(path)


def read_suite(path: str | Path | None = None) -> list[Item]:
    """Read prompts with tasks: YAML {task: [prompt, ...]}, or JSON Lines with rows {task, prompt} or, as in
    MT-Bench, {category, turns}, of which the last turn is measured. Raises SessionError.
    """
    path = suite_path(path)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SessionError(
            f"The suite {path} cannot be read: {getattr(error, 'strerror', None) or 'it is damaged'}.",
            "suite.read",
        ) from None
    if len(data) > LARGEST:
        raise SessionError(f"The suite {path} is larger than {LARGEST >> 20} MB.", "suite.large")
    try:
        text = data.decode("utf-8-sig")
        if path.suffix in (".yaml", ".yml"):
            rows = [(task, (prompt,)) for task, prompts in yaml.safe_load(text).items() for prompt in prompts]
        else:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
            rows = [
                (row["category"], (*row["turns"],))
                if isinstance(row.get("turns"), list)
                else (row["task"], (row["prompt"],))
                for row in found
            ]
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        raise SessionError(
            f"The suite {path} must hold rows with a task and a prompt.", "suite.rows"
        ) from None
    if not rows or not all(
        isinstance(word, str) and word.strip() for task, turns in rows for word in (task, *turns)
    ):
        raise SessionError(f"The suite {path} must hold rows with a task and a prompt.", "suite.rows")
    if not all(turns for _, turns in rows):
        raise SessionError(f"The suite {path} has a conversation without a turn.", "suite.empty_conversation")
    return [Item(task, turns[-1], turns[:-1]) for task, turns in rows]
