"""The next token of every n-gram in a table of fixed size, by hash alone (llama.cpp's ngram-mod): constant memory, constant time,
and now and then a token that belongs to another n-gram of the same hash.
"""
from __future__ import annotations

from array import array
from typing import Sequence

EMPTY = -1
FACTOR, BITS = 6364136223846793005, (1 << 64) - 1  # of a linear congruential generator, modulo 2**64
SIZE = 1 << 16


class HashPool:
    """n: tokens of a key; size: places of the table. ``used``: places that hold a token."""

    def __init__(self, n: int, size: int = SIZE):
        self.n, self.used = n, 0
        self.next = array("q", [EMPTY]) * size
        self._oldest = pow(FACTOR, n, 1 << 64)  # what the first token of a key weighs once another one follows

    def hash(self, tokens: Sequence[int]) -> int:
        """Of exactly n tokens."""
        value = 0
        for token in tokens:
            value = (value * FACTOR + token) & BITS
        return value

    def rolled(self, value: int, gone: int, new: int) -> int:
        """The hash of the key one token further on."""
        return (value * FACTOR + new - gone * self._oldest) & BITS

    def add(self, tokens: Sequence[int], begin: int = 0) -> None:
        """What follows each n-gram of a text, for the followers from place ``begin`` on; the newest one counts."""
        first = max(begin, self.n)
        if first >= len(tokens):
            return
        value = self.hash(tokens[first - self.n:first])
        for at in range(first, len(tokens)):
            place = value % len(self.next)
            self.used += self.next[place] == EMPTY
            self.next[place] = tokens[at]
            value = self.rolled(value, tokens[at - self.n], tokens[at])

    def follow(self, tokens: Sequence[int], most: int, stop: frozenset[int] = frozenset()) -> list[int]:
        """The chain that the table knows after the last n tokens: each token found becomes part of the next key."""
        out: list[int] = []
        if len(tokens) < self.n:
            return out
        window = list(tokens[-self.n:])
        value = self.hash(window)
        while len(out) < most and (token := self.next[value % len(self.next)]) != EMPTY:
            out.append(token)
            window.append(token)
            if token in stop:
                break
            value = self.rolled(value, window[len(out) - 1], token)
        return out
