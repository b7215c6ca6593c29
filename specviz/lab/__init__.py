"""The Lab: small experiments on the loaded models. This module does not import torch.

``answer(name, payload, loaded, stop)`` yields growing results, the last one complete; a string is a
progress message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from ..core.errors import CodedError
from .tasks import sample_prompts

# question -> module; those of LIGHT need no model
ENGINE = {
    "cost_curve": "pass_costs",
    "context_costs": "context_costs",
    "distribution": "distribution_test",
    "break_it": "broken_methods",
    "mask_sides": "mask_sides",
    "sweep": "sweep",
    "heat_map": "heat_map",
    "load": "load",
    "prompt_set": "prompt_set",
    "doctor": "doctor",
    "acceptance_killers": "acceptance_killers",
    "batch_effects": "batch_effects",
    "late_grammar": "late_grammar",
}
LIGHT = {
    "mistakes": "mistakes",
    "library": "recordings",
    "library_trace": "recordings",
    "html": "export",
    "tasks": "tasks",
    "scaling": "scaling",
    "questions": "recommend",
    "recommend": "recommend",
    "chip_model": "chip",
}
FIELDS = {
    "recommend": (
        "name",
        "engine",
        "model",
        "task",
        "card",
        "users",
        "temperature",
        "experts",
        "structured",
        "tools",
        "rates",
    )
}  # of a light question's payload; the others have a name
WHOLE = {"chip_model"}  # light questions that read and check the payload themselves


class LabError(CodedError, ValueError):
    """A question of the Lab cannot be answered."""


def answer(
    name: str, payload: dict[str, Any], loaded: Any = None, stop: Callable[[], bool] = bool
) -> Iterator[Any]:
    """Answer one question of the Lab. payload: its JSON input; stop(): True ends a measurement. Raises
    SessionError or LabError."""
    if name in LIGHT:
        fields = payload if name in WHOLE else _only(payload, FIELDS.get(name, ("name",)))
        yield getattr(import_module(f".{LIGHT[name]}", __name__), name)(**fields)
        return
    yield from getattr(import_module(f".{ENGINE[name]}", __name__), name)(loaded, payload, stop)


def _only(payload: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: payload[name] for name in names if name in payload}
