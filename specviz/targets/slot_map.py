"""Map from text positions to KV slots, so that accepted rows stay in the slots they were written to.

The map is a permutation of all slots. Positions before ``past`` are committed, followed by draft rows and
free slots. A commit rewrites the map entries of the draft rows and copies no keys or values; the commit of
a chain changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence


class SlotMap:
    """Maps positions of the text to slots of the KV cache.

    slot[position]: the slot; moved: positions that are not in the slot of the same number; changed: whether
    the map was changed since the device copy was updated.
    """

    def __init__(self, capacity: int):
        self.slot = list(range(capacity))
        self.moved: set[int] = set()
        self.changed = True

    def keep(self, past: int, rows: Sequence[int]) -> None:
        """Commit draft rows (ascending indices after ``past`` committed positions): their slots become
        those of positions past, past + 1, ...; the slots of all other draft rows follow."""
        count, kept = rows[-1] + 1, set(rows)
        order = [*rows, *(row for row in range(count) if row not in kept)]
        self._put(past, [self.slot[past + row] for row in order])

    def _put(self, at: int, slots: list[int]) -> None:
        for position, slot in enumerate(slots, at):
            if self.slot[position] != slot:
                self.slot[position], self.changed = slot, True
            (self.moved.discard if slot == position else self.moved.add)(position)

    def reset_to_identity(self, used: int) -> tuple[list[int], list[int]]:
        """Reset the map to the identity. Return the rows that the caller has to copy, (destination slots,
        source slots), for positions before ``used``."""
        to = sorted(position for position in self.moved if position < used)
        source = [self.slot[position] for position in to]
        for position in self.moved:
            self.slot[position] = position
        self.changed, self.moved = self.changed or bool(self.moved), set()
        return to, source

    def inverse(self) -> list[int]:
        """Return the list position[slot]."""
        out = [0] * len(self.slot)
        for position, slot in enumerate(self.slot):
            out[slot] = position
        return out
