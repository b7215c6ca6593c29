"""Where the rows of a text lie, when accepted rows stay where they were written: a map from positions to slots.

The map is a permutation of all slots. Positions before ``past`` are committed, those after it the scratch, the rest free. To
commit a path rewrites the entries of the scratch; nothing is copied, and a chain changes nothing at all.
"""
from __future__ import annotations

from typing import Sequence


class SlotMap:
    """slot[position]; ``moved``: positions that do not lie in the slot of their own number; ``changed``: since last asked."""

    def __init__(self, capacity: int):
        self.slot = list(range(capacity))
        self.moved: set[int] = set()
        self.changed = True

    def keep(self, past: int, rows: Sequence[int]) -> None:
        """Scratch rows (increasing, counted from ``past``) become positions past, past + 1, ...; others go behind them."""
        count, kept = rows[-1] + 1, set(rows)
        order = [*rows, *(row for row in range(count) if row not in kept)]
        self._put(past, [self.slot[past + row] for row in order])

    def _put(self, at: int, slots: list[int]) -> None:
        for position, slot in enumerate(slots, at):
            if self.slot[position] != slot:
                self.slot[position], self.changed = slot, True
            (self.moved.discard if slot == position else self.moved.add)(position)

    def straighten(self, used: int) -> tuple[list[int], list[int]]:
        """Make every position lie in its own slot: the rows to copy, (to, from), for positions before ``used``."""
        to = sorted(position for position in self.moved if position < used)
        source = [self.slot[position] for position in to]
        for position in self.moved:
            self.slot[position] = position
        self.changed, self.moved = self.changed or bool(self.moved), set()
        return to, source

    def inverse(self) -> list[int]:
        """position[slot]."""
        out = [0] * len(self.slot)
        for position, slot in enumerate(self.slot):
            out[slot] = position
        return out
