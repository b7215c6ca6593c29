"""The tasks of the shipped prompts."""
from __future__ import annotations

from typing import Any

import yaml

from .. import ASSETS

FILE = ASSETS / "prompts" / "bench.yaml"


def tasks(name: Any = None) -> list[dict[str, Any]]:
    """[{task, prompts: how many there are}]"""
    return [{"task": task, "prompts": len(prompts)} for task, prompts in yaml.safe_load(FILE.read_text(encoding="utf-8")).items()]
