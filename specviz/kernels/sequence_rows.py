"""Rows of a forward pass as the compiled code reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class SequenceRows(NamedTuple):
    """Rows of one sequence in a pass.

    cache: address of its KV cache, [layers, 2, kv_heads, capacity, head_dim]; tokens, positions, slots:
    int64 [rows]; past: int64 [rows], committed slots that a row sees; counts: int64 [rows]; lists: int32
    [rows, most]: the slots after these that it sees, along its path, itself last.
    """

    cache: int
    capacity: int
    tokens: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    past: np.ndarray
    counts: np.ndarray
    lists: np.ndarray


def chain_rows(
    cache: int, capacity: int, tokens: Sequence[int], slot: int, position: int, most_position: int
) -> SequenceRows:
    """Return the rows of a chain whose first token goes to ``slot``: each row sees all slots before it."""
    n = len(tokens)
    slots = np.arange(slot, slot + n)
    positions = slots if position == slot else np.arange(position, position + n)
    if position + n > most_position:
        positions = np.minimum(positions, most_position - 1)
    lists = slots.astype(np.int32)[:, None]
    return SequenceRows(
        cache, capacity, np.asarray(tokens, np.int64), positions, slots, slots, np.ones(n, np.int64), lists
    )
