"""What one visitor's runs leave for the next ones: their answers, and tables that methods keep. It lives with the visitor.

Nothing in it grows without bound: the newest answers up to ``room`` tokens, at most ``TABLES`` tables, each bounded by the
method that keeps it. Drafts taken from it may be wrong but never unlawful: it knows nothing of what is drawn next.
"""
from __future__ import annotations

from collections import deque
from copy import deepcopy
from typing import Any, Callable, Hashable, Sequence

ROOM = 8_000  # tokens; an automaton over two halves of so many takes some ten megabytes
TABLES = 16
ANSWERS = ("answers", "older answers")  # what an Origin calls the halves


class Memory:
    """``answers``: what was written, oldest first; ``taken``: how many answers were ever added."""

    def __init__(self, room: int = ROOM):
        self.room = room
        self.clear()

    def clear(self, mark: Hashable = None) -> None:
        """Forget everything. ``mark`` says whose tokens will be remembered from now on."""
        self.mark, self.taken, self._size = mark, 0, 0
        self.answers: deque[tuple[int, ...]] = deque()
        self._tables: dict[Hashable, Any] = {}
        self._lent: dict[Hashable, Any] = {}

    def frozen(self) -> Memory:
        """As it is now, whatever is added later; to be copied from."""
        found = self.copy()
        found._tables = deepcopy(self._lent | self._tables)
        return found

    def copy(self) -> Memory:
        """One that begins as this one is and leaves no mark on it; a table is copied when it is first asked for."""
        found = Memory(self.room)
        found.mark, found.taken, found._size, found.answers = self.mark, self.taken, self._size, self.answers.copy()
        found._lent = self._lent | self._tables
        return found

    def belong(self, mark: Hashable) -> None:
        """Tokens of another target or tokenizer mean something else: what was remembered for it is forgotten."""
        if mark != self.mark:
            self.clear(mark)

    def add(self, tokens: Sequence[int]) -> None:
        """An answer, whoever wrote it; one that is remembered already (a race writes it several times) is not kept twice."""
        answer = tuple(tokens)[-self.room:]
        if not answer or answer in self.answers:
            return
        self.answers.append(answer)
        self.taken += 1
        self._size += len(answer)
        while self._size > self.room:
            self._size -= len(self.answers.popleft())

    def since(self, taken: int) -> list[tuple[int, ...]]:
        """The answers added after the first ``taken`` ones, as far as they are still remembered."""
        new = min(self.taken - taken, len(self.answers))
        return [self.answers[i] for i in range(len(self.answers) - new, len(self.answers))]

    def table(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """A method's own table, made when it is first asked for; the one not asked for longest goes when there are too many."""
        if name not in self._tables and name in self._lent:
            self._tables[name] = deepcopy(self._lent[name])
        self._tables[name] = self._tables.pop(name) if name in self._tables else make()
        while len(self._tables) > TABLES:
            self._tables.pop(next(iter(self._tables)))
        return self._tables[name]


def memory_of(kit: Any) -> Memory:
    """The memory that the caller of a run brought along; a kit without one forgets with the run."""
    return getattr(kit, "memory", None) or Memory()
