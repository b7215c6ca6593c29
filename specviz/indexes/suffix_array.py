"""Suffix array over a fixed datastore (REST, He et al. 2311.08252): all occurrences of a token sequence
form one range, found by binary search. The arrays may be memory-mapped; nothing is copied."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

PART = np.uint32(0xFFFFFFFF)  # separator between documents; larger than every token id


class SuffixArray:
    """A suffix array over the tokens of a datastore.

    tokens: uint32 [n], documents separated by PART; order: int32 [n], positions sorted by their next
    ``depth`` tokens.
    """

    def __init__(self, tokens: np.ndarray, order: np.ndarray, depth: int):
        if len(tokens) != len(order):
            raise ValueError(f"the suffix array has {len(order)} places for {len(tokens)} tokens")
        self.tokens = tokens
        self.order = order
        self.depth = depth

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def build(cls, tokens: np.ndarray, depth: int = 32) -> SuffixArray:
        """Build a suffix array sorted by the next ``depth`` tokens: by 1, 2, 4, ... tokens (prefix
        doubling), in log2(depth) sorts of n numbers."""
        tokens = np.asarray(tokens, dtype=np.uint32)
        n = len(tokens)
        if not n:
            return cls(tokens, np.zeros(0, np.int32), depth)
        rank = np.unique(tokens, return_inverse=True)[1].astype(np.int64)
        done = 1
        while True:
            later = np.zeros(n, np.int64)  # 0: past the end, before every rank
            later[: max(n - done, 0)] = rank[done:] + 1
            key = rank * (n + 1) + later
            order = np.argsort(key, kind="stable")
            if done * 2 >= depth:
                return cls(tokens, order.astype(np.int32), depth)
            rank = np.empty(n, np.int64)
            rank[order] = np.concatenate([[0], np.cumsum(np.diff(key[order]) != 0)])
            done *= 2

    def range(self, pattern: Sequence[int]) -> tuple[int, int]:
        """Return the range [low, high) of ``order`` with all occurrences of the pattern; only its first
        ``depth`` tokens are compared."""
        pattern = [int(x) for x in pattern][: self.depth]
        low = self._first(pattern, 0, len(self.order), False)
        return low, self._first(pattern, low, len(self.order), True)

    def _first(self, pattern: list[int], low: int, high: int, after: bool) -> int:
        """Return the lower (or with ``after`` the upper) bound of the pattern in order[low:high]."""
        size = len(pattern)
        while low < high:
            middle = (low + high) // 2
            at = int(self.order[middle])
            here = self.tokens[at : at + size].tolist()
            if here < pattern or (after and here == pattern):
                low = middle + 1
            else:
                high = middle
        return low

    def longest(self, context: Sequence[int], max_n: int, min_n: int = 1) -> tuple[int, int, int]:
        """Return (n, low, high) of the longest suffix of ``context`` with ``min_n`` to ``max_n`` tokens
        that occurs: its length and its range in ``order``; n = 0 if there is none."""
        max_n = min(max_n, len(context), self.depth)
        found = (0, 0, 0)
        while min_n <= max_n:
            n = (min_n + max_n + 1) // 2  # if a suffix occurs, so does every shorter one
            low, high = self.range(context[len(context) - n :])
            if low < high:
                found, min_n = (n, low, high), n + 1
            else:
                max_n = n - 1
        return found

    def extend_match(
        self, context: Sequence[int], n: int, low: int, high: int, hits: int = 4096
    ) -> tuple[int, int]:
        """Extend a match of n tokens beyond ``depth``. Return (length, position): the longest match of
        ``context`` among the positions order[low:high], and the position after it. At most ``hits``
        positions are compared, spread evenly over the range."""
        places = np.asarray(self.order[low : high : max(1, -(-(high - low) // hits))], dtype=np.int64)
        length = n
        while length < len(context):
            before = places - (length - n) - 1
            same = before >= 0
            same[same] = self.tokens[before[same]] == context[len(context) - length - 1]
            if not same.any():
                break
            places, length = places[same], length + 1
        return length, int(places[0]) + n

    def followers(self, places: np.ndarray, skip: int) -> list[tuple[int, int, int]]:
        """Return (token, a, b), sorted by token id: positions places[a:b] have this token ``skip`` tokens
        later.

        The positions must be in the array's order and agree in their first ``skip`` tokens; skip must be
        below ``depth``.
        """
        at = places.astype(np.int64) + skip
        late = int((at >= len(self.tokens)).sum())  # positions past the end come first
        heads = self.tokens[at[late:]]
        cuts = np.flatnonzero(heads[1:] != heads[:-1]) + 1
        edges = [0, *cuts.tolist(), len(heads)] if len(heads) else []
        return [(int(heads[a]), late + a, late + b) for a, b in zip(edges, edges[1:]) if heads[a] != PART]

    def frequent_continuations(
        self,
        matched: int,
        low: int,
        high: int,
        *,
        max_depth: int,
        max_nodes: int,
        hits: int,
        max_children: int = 10**9,
    ):
        """Return the ``max_nodes`` most frequent continuations of the match order[low:high] of ``matched``
        tokens, as a tree: (token, parent, count, position), most frequent first.

        parent: index into the result, -1 at the root; of equally frequent ones the shorter comes first, so
        parents precede children. hits: maximum number of positions examined, spread evenly over the range.
        """
        places = np.asarray(self.order[low : high : max(1, -(-(high - low) // max(hits, 1)))])
        out: list[tuple[int, int, int, int]] = []
        heap: list[tuple] = []

        def offer(parent: int, a: int, b: int, depth: int) -> None:
            if depth < max_depth and matched + depth < self.depth:
                found = self.followers(places[a:b], matched + depth)
                for token, c, d in sorted(found, key=lambda f: (f[1] - f[2], f[0]))[:max_children]:
                    heapq.heappush(heap, (c - d, depth, len(out), token, parent, a + c, a + d))

        offer(-1, 0, len(places), 0)
        while heap and len(out) < max_nodes:
            count, depth, _, token, parent, a, b = heapq.heappop(heap)
            out.append((token, parent, -count, int(places[a]) + matched + depth))
            offer(len(out) - 1, a, b, depth + 1)
        return out
