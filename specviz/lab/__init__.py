"""The Lab: small experiments on the loaded models, each a question with a plain answer. Nothing here imports torch by itself.

``answer(name, payload, loaded, stop)`` yields the answer as it grows, the last one being whole; a string is a word on progress.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any, Callable, Iterator

from .tasks import company

# question: (module, function); those of LIGHT need no model
ENGINE = {"cost_curve": "costs", "context_costs": "contexts", "distribution": "distribution_test", "break_it": "broken", "sweep": "sweep", "load": "load"}
LIGHT = {"mistakes": "mistakes", "library": "library", "library_trace": "library", "html": "export",
         "tasks": "tasks", "scaling": "scaling"}


class LabError(ValueError):
    """This cannot be answered; the message is one sentence."""


def answer(name: str, payload: dict[str, Any], loaded: Any = None, stop: Callable[[], bool] = bool) -> Iterator[Any]:
    """Answer one question. Raises SessionError or LabError with a sentence for what cannot be answered."""
    if name in LIGHT:
        yield getattr(import_module(f".{LIGHT[name]}", __name__), name)(**_only(payload, ("name",)))
        return
    yield from getattr(import_module(f".{ENGINE[name]}", __name__), name)(loaded, payload, stop)


def _only(payload: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: payload[name] for name in names if name in payload}
