"""The order in which settings are measured: turn by turn, so that a change of the machine's speed falls on all
of them alike, and the i-th runs of two settings are a pair (trace/speed.py)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def shuffled_turns(settings: Iterable[T], count: int, seed: int = 0) -> Iterator[list[T]]:
    """Yield all settings ``count`` times, each time in another shuffled order."""
    every, rng = list(settings), random.Random(seed)
    for _ in range(count):
        yield rng.sample(every, len(every))
