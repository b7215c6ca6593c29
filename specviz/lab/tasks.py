"""The shipped prompts: their tasks, and a class of them."""
from __future__ import annotations

from typing import Any

import yaml

from .. import ASSETS

FILE = ASSETS / "prompts" / "bench.yaml"


def tasks(name: Any = None) -> list[dict[str, Any]]:
    """[{task, prompts: how many there are}]"""
    return [{"task": task, "prompts": len(prompts)} for task, prompts in _read().items()]


def company(count: int) -> list[str]:
    """So many prompts, one of each task in turn."""
    return [prompt for row in zip(*_read().values()) for prompt in row][:count]


def _read() -> dict[str, list[str]]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))
