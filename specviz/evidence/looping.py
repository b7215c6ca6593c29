"""Detect looping answers (endless repetition). They favour methods that copy, so benchmark figures are
given with and without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

GRAM = 12  # an answer loops if some n-gram of this size
TIMES = 3  # occurs this often


def loops(tokens: Sequence[int], gram: int = GRAM, times: int = TIMES) -> bool:
    """Return whether an answer repeats itself: whether some sequence of ``gram`` tokens occurs at least
    ``times`` times. Occurrences may overlap."""
    counts = Counter(tuple(tokens[at : at + gram]) for at in range(len(tokens) - gram + 1))
    return max(counts.values(), default=0) >= times
