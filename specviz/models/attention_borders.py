"""Widths of a config at which attention changes: a local window, the keys that an index selects, a chunk.

Up to such a width ("border") a network computes full attention; a check with a shorter text shows nothing
of what it does beyond.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

WIDTH = re.compile(r"window|index_?(top_?k|block)|chunk|block_size|keep|original_max")
COUNT = re.compile(
    r"^(num|n|use|norm)_|layers|pattern|kernel|experts|logits|vision|audio"
)  # they hold such a word and are no width
MOST = 3  # borders that are checked
LONGEST = 300  # tokens up to the longest border that is checked
BEYOND = 16  # tokens of the context beyond a border that a check needs


def borders(config: dict[str, Any], context: int) -> list[int]:
    """Return the smallest borders of a config (as a dict) at which a network can be asked, in ascending
    order."""
    return sorted({width for width in _widths(config) if 1 < width <= min(LONGEST, context - BEYOND)})[:MOST]


def _widths(config: dict[str, Any]) -> Iterator[int]:
    for key, value in config.items():
        if isinstance(value, dict) and (
            key == "text_config" or key.startswith("rope_") or "original_max_position_embeddings" in value
        ):
            yield from _widths(value)
        elif WIDTH.search(key) and not COUNT.search(key):
            yield from (
                width
                for width in (value if isinstance(value, (list, tuple)) else [value])
                if type(width) is int
            )
