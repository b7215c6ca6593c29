"""What the page needs from an engine."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

from .limits import RunRequest

Record = dict[str, Any]  # one of a trace


class Backend(Protocol):
    """The engine as the page uses it. ``run`` and ``load`` are called in a worker thread and may block. What is loaded is named
    by target and draft as one name (limits.model_key)."""

    cards: dict[str, Any]
    questions: frozenset[str]  # of the Lab; those of ``light`` need no model and no place in the queue
    light: frozenset[str]

    def ready(self, target: str | None) -> bool:
        """Whether a run could start without loading anything."""

    def load(self, target: str | None) -> str:
        """Load the models; return a short description of them. Raises Refused."""

    def progress(self, target: str | None) -> str:
        """Return how far the loading of a target is, in a few words; empty where that is not known."""

    def wants(self, payload: dict[str, Any]) -> str | None:
        """Return the target that a question of the Lab is about."""

    def targets(self) -> list[dict[str, str]]:
        """Models that a visitor may choose: {name, model, title, about}, the default first; its name is empty. scripts: all that one
        was trained to read, where that is little; draft: the name of its own draft, where it has one."""

    def drafts(self, target: str | None = None) -> list[dict[str, str]]:
        """Return the draft models that a visitor may choose for a target: {name, title}."""

    def why_not(self, target: str | None = None) -> dict[str, str]:
        """Return the methods that cannot run on this model, loaded or not: key -> a sentence on what is missing."""

    def knob_limits(self, key: str, target: str | None = None) -> dict[str, float]:
        """Return the highest value of each knob of a method that the models limit."""

    def run(self, ask: RunRequest, cancel: threading.Event, seconds: float) -> Iterator[list[Record] | dict[str, str]]:
        """Yield the records of all lanes in order, a batch at a time, and maybe a status between. Ends within one round of
        ``cancel``."""

    def generate(self, target: str | None, asked: Any, cancel: threading.Event, seconds: float) -> Iterator[Any]:
        """Yield lists of chunks of a generation.Generation, as generation.generate does."""

    def batch_name(self, target: str | None, asked: Any) -> str:
        """Return the name of the batch that may answer a Generation together with others; empty for none. Its model is loaded."""

    def answer(self, name: str, payload: dict[str, Any], cancel: threading.Event, seconds: float) -> Iterator[Any]:
        """Yield the answer to a question as it grows, the last one whole; a text is a message on progress. The models it needs are
        loaded."""
