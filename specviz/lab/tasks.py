"""The shipped prompts by task."""

from __future__ import annotations

from typing import Any

import yaml

from .. import ASSETS

FILE = ASSETS / "prompts" / "bench.yaml"


def tasks(name: Any = None) -> list[dict[str, Any]]:
    """Return [{task, prompts: number of prompts}]."""
    return [{"task": task, "prompts": len(prompts)} for task, prompts in _read().items()]


def sample_prompts(count: int) -> list[str]:
    """Return ``count`` shipped prompts, one task after another."""
    return [prompt for row in zip(*_read().values()) for prompt in row][:count]


def _read() -> dict[str, list[str]]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))
