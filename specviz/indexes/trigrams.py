"""Tri-gram counts of a datastore as sorted arrays with binary search (the corpus of ADED, Liu et al.
2407.12021)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .suffix_array import PART


class Trigrams:
    """The successors of each pair of tokens in a datastore, with their counts.

    tokens: uint32 [n], documents separated by suffix_array.PART.
    """

    def __init__(self, tokens: np.ndarray):
        text = np.asarray(tokens, dtype=np.uint64)
        a = text[:-2]
        b = text[1:-1]
        c = text[2:]
        whole = (a != PART) & (b != PART) & (c != PART)
        pairs = (a << np.uint64(32) | b)[whole]
        order = np.lexsort((c[whole], pairs))
        pairs, after = pairs[order], c[whole][order]
        first = np.ones(len(pairs), bool)
        first[1:] = (pairs[1:] != pairs[:-1]) | (after[1:] != after[:-1])
        starts = np.flatnonzero(first)
        self.counts = np.diff(np.append(starts, len(pairs)))
        self.pairs, self.after = pairs[starts], after[starts].astype(np.int64)

    def __len__(self) -> int:
        return len(self.pairs)

    def successors(self, pair: tuple[int, int], most: int) -> list[tuple[int, float]]:
        """Return (token, relative frequency) of the ``most`` most frequent successors of a pair, best
        first."""
        key = np.uint64(pair[0] << 32 | pair[1])
        low, high = np.searchsorted(self.pairs, key), np.searchsorted(self.pairs, key, side="right")
        counts = self.counts[low:high]
        best = np.argsort(-counts, kind="stable")[:most]
        return list(zip(self.after[low:high][best].tolist(), (counts[best] / max(1, counts.sum())).tolist()))


def trigrams_of(tokens: np.ndarray) -> Trigrams:
    """Return the Trigrams of a token array; memory-mapped arrays are counted once per process."""
    path = getattr(tokens, "filename", None)
    return _of_file(str(path)) if path else Trigrams(tokens)


@lru_cache(maxsize=2)
def _of_file(path: str) -> Trigrams:
    return Trigrams(np.load(path, mmap_mode="r", allow_pickle=False))
