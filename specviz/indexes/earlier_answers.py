"""Memory between the runs of one visitor: earlier answers and tables of the methods.

It is bounded: the latest answers up to ``capacity`` tokens and at most ``TABLES`` tables, each bounded by
its method. Drafts from it cannot bias the output, because they do not depend on future random numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from copy import deepcopy
from typing import Any

CAPACITY = 8_000  # tokens; an automaton over two halves of this size takes about 10 MB
TABLES = 16
ANSWERS = ("answers", "older answers")  # names of the halves in an Origin


class Memory:
    """The token ids of one visitor's earlier answers, and tables that methods keep between runs.

    answers: oldest first, at most ``capacity`` tokens together; taken: number of answers ever added; mark:
    identifies the target and tokenizer.
    """

    def __init__(self, capacity: int = CAPACITY):
        self.capacity = capacity
        self.clear()

    def clear(self, mark: Hashable = None) -> None:
        """Drop everything. mark: identifies the target and tokenizer of the answers to come."""
        self.mark = mark
        self.taken = 0
        self._size = 0
        self.answers: deque[tuple[int, ...]] = deque()
        self._tables: dict[Hashable, Any] = {}
        self._shared_tables: dict[Hashable, Any] = {}

    def snapshot(self) -> Memory:
        """Return a copy of the current content that later runs do not change."""
        found = self.copy()
        found._tables = deepcopy(self._shared_tables | self._tables)
        return found

    def copy(self) -> Memory:
        """Return an independent copy; tables are copied lazily on first use."""
        found = Memory(self.capacity)
        found.mark = self.mark
        found.taken = self.taken
        found._size = self._size
        found.answers = self.answers.copy()
        found._shared_tables = self._shared_tables | self._tables
        return found

    def clear_unless_mark(self, mark: Hashable) -> None:
        """Drop everything if ``mark`` differs from the memory's: token ids of another target or tokenizer
        have other meanings."""
        if mark != self.mark:
            self.clear(mark)

    def add(self, tokens: Sequence[int]) -> None:
        """Add an answer, unless it is stored already (a race of several methods generates it several
        times)."""
        answer = tuple(tokens)[-self.capacity :]
        if not answer or answer in self.answers:
            return
        self.answers.append(answer)
        self.taken += 1
        self._size += len(answer)
        while self._size > self.capacity:
            self._size -= len(self.answers.popleft())

    def since(self, taken: int) -> list[tuple[int, ...]]:
        """Return the stored answers that were added after the first ``taken`` ones."""
        new = min(self.taken - taken, len(self.answers))
        return [self.answers[i] for i in range(len(self.answers) - new, len(self.answers))]

    def table(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """Return the table of this name, calling ``make`` on first use; the least recently used table is
        dropped if there are too many."""
        if name not in self._tables and name in self._shared_tables:
            self._tables[name] = deepcopy(self._shared_tables[name])
        self._tables[name] = self._tables.pop(name) if name in self._tables else make()
        while len(self._tables) > TABLES:
            self._tables.pop(next(iter(self._tables)))
        return self._tables[name]


def memory_of(kit: Any) -> Memory:
    """Return the visitor's memory of a kit; without one, an empty memory for this run only."""
    return getattr(kit, "memory", None) or Memory()
