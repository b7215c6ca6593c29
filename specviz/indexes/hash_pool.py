"""Fixed-size hash table from n-grams to their next token, without collision checks (llama.cpp's ngram-mod):
constant memory and time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

EMPTY = -1
FACTOR = 6364136223846793005  # of a linear congruential generator
BITS = (1 << 64) - 1  # its modulus less one
SIZE = 1 << 16


class HashPool:
    """A hash table of fixed size from n-grams to the token after them.

    n: tokens of a key; size: number of slots; used: occupied slots; next: token per slot, EMPTY for none.
    """

    def __init__(self, n: int, size: int = SIZE):
        self.n, self.used = n, 0
        self.next = array("q", [EMPTY]) * size
        self._oldest = pow(FACTOR, n, 1 << 64)  # weight of the first token of a key after one shift

    def hash(self, tokens: Sequence[int]) -> int:
        """Return the hash of exactly n tokens."""
        value = 0
        for token in tokens:
            value = (value * FACTOR + token) & BITS
        return value

    def roll_hash(self, value: int, gone: int, new: int) -> int:
        """Return the hash of the n-gram one token later: ``value`` is the hash of the current one, ``gone``
        its first token, ``new`` the token that follows it (rolling hash)."""
        return (value * FACTOR + new - gone * self._oldest) & BITS

    def add(self, tokens: Sequence[int], begin: int = 0) -> None:
        """Store the successor of each n-gram of a text, from position ``begin`` on; newer ones overwrite
        older ones."""
        first = max(begin, self.n)
        if first >= len(tokens):
            return
        value = self.hash(tokens[first - self.n : first])
        for at in range(first, len(tokens)):
            place = value % len(self.next)
            self.used += self.next[place] == EMPTY
            self.next[place] = tokens[at]
            value = self.roll_hash(value, tokens[at - self.n], tokens[at])

    def follow(self, tokens: Sequence[int], max_tokens: int, stop: frozenset[int] = frozenset()) -> list[int]:
        """Return a chain of at most ``max_tokens`` stored successors after the last n tokens, up to a token
        of ``stop``."""
        out: list[int] = []
        if len(tokens) < self.n:
            return out
        window = list(tokens[-self.n :])
        value = self.hash(window)
        while len(out) < max_tokens and (token := self.next[value % len(self.next)]) != EMPTY:
            out.append(token)
            window.append(token)
            if token in stop:
                break
            value = self.roll_hash(value, window[len(out) - 1], token)
        return out
