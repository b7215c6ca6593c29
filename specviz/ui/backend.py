"""The interface between the page and an engine."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

from .limits import RunRequest

Record = dict[str, Any]  # one of a trace


class Backend(Protocol):
    """The engine, as the page uses it. ``run`` and ``load`` are called in a worker thread and may block. Loaded models
    are identified by one name for target and draft (limits.model_key)."""

    cards: dict[str, Any]
    questions: frozenset[str]  # of the Lab; those of ``light`` need no model and no place in the queue
    light: frozenset[str]

    def ready(self, target: str | None) -> bool:
        """Return whether a run could start without loading anything."""
        ...

    def load(self, target: str | None) -> str:
        """Load the models; return a short description of them. Raises Refused."""
        ...

    def progress(self, target: str | None) -> str:
        """Return the progress of loading a target, in a few words; empty if unknown."""
        ...

    def wants(self, payload: dict[str, Any]) -> str | None:
        """Return the target that a Lab question needs."""
        ...

    def targets(self) -> list[dict[str, str]]:
        """Return the models that a visitor may choose: {name, model, title, about}, the default first; its name is empty.
        scripts: the writing systems a model was trained on, if few; draft: the name of its draft, if it has one."""
        ...

    def drafts(self, target: str | None = None) -> list[dict[str, str]]:
        """Return the draft models that a visitor may choose for a target: {name, title}."""
        ...

    def unsupported_reason(self, target: str | None = None) -> dict[str, str]:
        """Return {method key: why it cannot run on this model}, loaded or not; methods that can run are left out."""
        ...

    def knob_limits(self, key: str, target: str | None = None) -> dict[str, float]:
        """Return the highest value of each knob of a method that the models limit."""
        ...

    def run(self, asked: RunRequest, cancel: threading.Event, seconds: float) -> Iterator[list[Record] | dict[str, str]]:
        """Run all lanes of a request. Yield lists of trace records in order, and status updates between them. Ends
        within one round after ``cancel`` is set."""
        ...

    def generate(self, target: str | None, asked: Any, cancel: threading.Event, seconds: float) -> Iterator[Any]:
        """Run a generation.Generation; yield lists of chunks, as generation.generate does."""
        ...

    def batch_name(self, target: str | None, asked: Any) -> str:
        """Return the name of the batch in which a Generation may share forward passes with others; empty if it may not.
        Its model must be loaded."""
        ...

    def answer(self, name: str, payload: dict[str, Any], cancel: threading.Event, seconds: float) -> Iterator[Any]:
        """Answer a Lab question: yield the growing answer, the last one complete; strings are progress messages. The
        models it needs must be loaded."""
        ...
