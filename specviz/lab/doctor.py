"""The report of ``specviz doctor`` for the page: this machine, and a two-second measurement of the loaded
models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..evidence.doctor import report_loaded

if TYPE_CHECKING:
    from ..zoo.pair import Loaded


def doctor(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Yield the report of evidence.doctor. The duration of the measurement is fixed, so that a request
    cannot prolong it."""
    yield report_loaded(loaded)
