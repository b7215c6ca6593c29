"""Incremental n-gram counts (ANPD, Ou et al. 2404.08698; the tri-gram matrix of ADED, Liu et al.
2407.12021)."""

from __future__ import annotations

from ..core.errors import InvalidUse
from .suffix_automaton import TextIndex


class NgramCounts(TextIndex):
    """Index of a growing text: for every n-gram of 1 .. max_n - 1 tokens, the counts of its successors and
    the position of its last occurrence.

    The most frequent successor is maintained incrementally, ties go to the latest; lookup takes constant
    time.
    """

    always_reversible = True

    def __init__(self, max_n: int):
        if max_n < 2:
            raise InvalidUse(f"n-grams need at least 2 tokens, not {max_n}", "ngram.size")
        self.max_n = max_n
        super().__init__()

    def clear(self) -> None:
        """Drop the text and all counts."""
        super().clear()
        self.after: dict[tuple[int, ...], dict[int, list[int]]] = {}
        self._best: dict[tuple[int, ...], int] = {}

    def _keys(self):
        """Yield the n-grams before the last token, shortest first."""
        end = len(self.text) - 1
        for n in range(1, min(self.max_n - 1, end) + 1):
            yield tuple(self.text[end - n : end])

    def _add(self, token: int) -> None:
        for key in self._keys():
            places = self.after.setdefault(key, {}).setdefault(token, [])
            places.append(len(self.text) - 1)
            best = self._best.get(key, token)
            if len(places) >= len(self.after[key][best]):
                self._best[key] = token

    def _undo(self) -> None:
        token = self.text[-1]
        for key in self._keys():
            known = self.after[key]
            known[token].pop()
            if not known[token]:
                del known[token]
            if known:
                self._best[key] = max(known, key=lambda x: (len(known[x]), known[x][-1]))
            else:
                del self.after[key], self._best[key]

    def best(self, context) -> tuple[int, int, int]:
        """Return (token, n, position): the most frequent successor of the longest known suffix of
        ``context``, the length of the n-gram including that successor, and the position of its last
        occurrence.

        (-1, 0, 0) if the last token has no successor.
        """
        for n in range(min(self.max_n - 1, len(context)), 0, -1):
            key = tuple(context[-n:])
            if key in self._best:
                token = self._best[key]
                return token, n + 1, self.after[key][token][-1]
        return -1, 0, 0

    def successors(self, key: tuple[int, ...], count: int) -> list[tuple[int, int]]:
        """Return (token, frequency) of the ``count`` most frequent successors of ``key``, most frequent
        first, ties to the latest."""
        known = self.after.get(key, {})
        return [
            (x, len(known[x])) for x in sorted(known, key=lambda x: (-len(known[x]), -known[x][-1]))[:count]
        ]
