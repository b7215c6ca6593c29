"""The interface between the page and an engine."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

from .limits import RunRequest

Record = dict[str, Any]  # one of a trace


class Backend(Protocol):
    """The engine as the page uses it. ``run`` and ``load`` are called in a worker thread and may block. Loaded models are
    identified by target and draft as one name (limits.model_key)."""

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
        """Return the target that a question of the Lab is about."""
        ...

    def targets(self) -> list[dict[str, str]]:
        """Return the models that a visitor may choose: {name, model, title, about}, the default first; its name is empty.
        scripts: the writing systems a model was trained on, if few; draft: the name of its draft, if it has one."""
        ...

    def drafts(self, target: str | None = None) -> list[dict[str, str]]:
        """Return the draft models that a visitor may choose for a target: {name, title}."""
        ...

    def why_not(self, target: str | None = None) -> dict[str, str]:
        """Return the methods that cannot run on this model, loaded or not: key -> a sentence on what is missing."""
        ...

    def knob_limits(self, key: str, target: str | None = None) -> dict[str, float]:
        """Return the highest value of each knob of a method that the models limit."""
        ...

    def run(self, asked: RunRequest, cancel: threading.Event, seconds: float) -> Iterator[list[Record] | dict[str, str]]:
        """Yield the records of all lanes in order, in batches, and status updates between them. Ends within one round of
        ``cancel``."""
        ...

    def generate(self, target: str | None, asked: Any, cancel: threading.Event, seconds: float) -> Iterator[Any]:
        """Yield lists of chunks of a generation.Generation, as generation.generate does."""
        ...

    def batch_name(self, target: str | None, asked: Any) -> str:
        """Return the name of the batch in which a Generation may share forward passes with others; empty for none. Its model is
        loaded."""
        ...

    def answer(self, name: str, payload: dict[str, Any], cancel: threading.Event, seconds: float) -> Iterator[Any]:
        """Yield the answer to a question as it grows, the last one complete; a string is a progress message. The models it needs
        are loaded."""
        ...
