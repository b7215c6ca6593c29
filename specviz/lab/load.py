"""Load test: plain decoding and batched methods with the same arrivals, one load after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..evidence.load_test import METHODS, measuring
from ..run.request import SessionError, read_integer
from .pass_costs import machine
from .payload import sampling_of

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

LOADS = 6  # limits of a question: loads
METHODS_MOST = 6  # methods
USERS = 32  # users of a load
REQUESTS = 128  # requests per load
LONGEST = 128  # tokens of an answer


def load(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Measure speed over the number of users or the request rate.

    payload {methods?, users? or rates?: [number, ...], tasks?, requests?, max_new_tokens?, temperature?,
    seed?} -> the report of evidence.load.measuring with ``machine``, yielded repeatedly; a stopped test
    returns what was measured.
    """
    methods, tasks = _listed(payload, "methods", METHODS_MOST) or METHODS, _listed(payload, "tasks", 20)
    users, rates = _listed(payload, "users", LOADS), _listed(payload, "rates", LOADS)
    if not all(isinstance(word, str) for word in (*methods, *tasks)):
        raise SessionError("Methods and tasks are given by their names.", "lab.names")
    users = [read_integer("users", one, 1, USERS) for one in users]
    requests = read_integer("requests", payload.get("requests", 24), 1, REQUESTS)
    length = read_integer("max_new_tokens", payload.get("max_new_tokens", 32), 2, LONGEST)
    for report in measuring(
        loaded,
        methods,
        users=users or (1, 2, 4, 8),
        rates=rates,
        requests=requests,
        tasks=tasks,
        max_new_tokens=length,
        sampling=sampling_of(payload, 0.0),
        stop=stop,
    ):
        yield {**report, "machine": machine(loaded)}


def _listed(payload: dict[str, Any], name: str, most: int) -> list[Any]:
    values = payload.get(name) or []
    if not isinstance(values, list) or len(values) > most:
        raise SessionError(f"The {name} must be a list of at most {most}.", "lab.list")
    return values
