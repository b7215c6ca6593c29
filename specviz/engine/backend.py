"""The interface between the page and an engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

from .limits import RunRequest

Record = dict[str, Any]  # one of a trace


class Backend(Protocol):
    """The interface that the page needs from an engine. ``run`` and ``load`` are called in a worker thread
    and may block. Loaded models are identified by one name for target and draft (limits.model_key); None:
    the default. cards: {method key: card}; questions: names of the Lab's questions; light: those that need
    no model."""

    cards: dict[str, Any]
    questions: frozenset[str]  # of the Lab; those in ``light`` need no model and do not wait in the queue
    light: frozenset[str]

    def ready(self, target: str | None) -> bool:
        """Return whether a run could start without loading anything."""
        ...

    def load(self, target: str | None) -> str:
        """Load the models; return a short description of them. Raises Refused."""
        ...

    def fetches(self, target: str | None) -> bool:
        """Return whether loading has to fetch weights from the network first. Raises Refused where visitors
        may not have that done."""
        ...

    def fetch(self, target: str | None, stop: threading.Event) -> None:
        """Fetch what ``load`` needs, until ``stop`` is set; may take long. Raises Refused."""
        ...

    def progress(self, target: str | None) -> str:
        """Return the progress of loading a target's models in a few words; empty if unknown."""
        ...

    def wants(self, payload: dict[str, Any]) -> str | None:
        """Return the name of the target that a Lab question needs."""
        ...

    def targets(self) -> list[dict[str, str]]:
        """Return the models that a visitor may choose: {name, model, title, about}, the default first,
        whose name is empty. Optional fields: languages: those that a model was trained on, if few; draft:
        the name of its draft model."""
        ...

    def drafts(self, target: str | None = None) -> list[dict[str, str]]:
        """Return the draft models that a visitor may choose for a target: {name, title}."""
        ...

    def unsupported_reason(self, target: str | None = None) -> dict[str, str]:
        """Return {method key: why it cannot run on this model}, whether or not the model is loaded; methods
        that can run are left out."""
        ...

    def knob_limits(self, key: str, target: str | None = None) -> dict[str, float]:
        """Return the highest value of each knob of a method that the models limit."""
        ...

    def run(
        self, asked: RunRequest, cancel: threading.Event, seconds: float
    ) -> Iterator[list[Record] | dict[str, str]]:
        """Run all lanes (methods side by side) of a request. Yield lists of trace records in order, and
        status updates between them. Ends within one round after ``cancel`` is set, or after ``seconds``."""
        ...

    def generate(
        self, target: str | None, asked: Any, cancel: threading.Event, seconds: float
    ) -> Iterator[Any]:
        """Answer a request for generation (generation.Generation); yield lists of chunks, as
        generation.generate does."""
        ...

    def batch_name(self, target: str | None, asked: Any) -> str:
        """Return the name of the batch in which a Generation may share forward passes with others; empty if
        it may not. Its model must be loaded."""
        ...

    def answer(
        self, name: str, payload: dict[str, Any], cancel: threading.Event, seconds: float
    ) -> Iterator[Any]:
        """Answer a Lab question: yield the growing answer, the last one complete; a string is a progress
        message. The models that it needs must be loaded."""
        ...
