"""Trie of short token sequences with frequencies: the Lookahead framework of Ant Group (Zhao et al. 2312.12728)."""
from __future__ import annotations

import heapq
from collections.abc import Sequence


class Branch:
    """A trie node: frequency and children."""

    __slots__ = ("count", "next")

    def __init__(self):
        self.count = 0.0
        self.next: dict[int, Branch] = {}


class BranchTrie:
    """Trie of all sequences of ``length`` tokens in the added texts. If it has more than ``most`` nodes, all
    frequencies are halved and nodes with a frequency below one are dropped."""

    def __init__(self, length: int, most: int = 65_536):
        self.length, self.most, self.size, self.root = length, most, 0, Branch()

    def put(self, tokens: Sequence[int], begin: int = 0, end: int | None = None) -> None:
        """Add the sequences that start at begin .. end - 1; those at the end of the text are shorter."""
        for at in range(begin, len(tokens) if end is None else end):
            node = self.root
            for token in tokens[at:at + self.length]:
                below = node.next.get(token)
                if below is None:
                    below = node.next[token] = Branch()
                    self.size += 1
                below.count += 1
                node = below
        while self.size > self.most:
            self.size = _squeeze(self.root)

    def find(self, prefix: Sequence[int]) -> Branch | None:
        """Return the node of a prefix, or None."""
        node: Branch | None = self.root
        for token in prefix:
            node = node.next.get(token)
            if node is None:
                return None
        return node


def grow(nodes: Sequence[Branch], deep: int, room: int, wide: int) -> list[tuple[int, int, float]]:
    """Return the ``room`` most frequent continuations of a prefix, whose node in each of several tries is given:
    (token, parent, frequency), parent an index into the result, -1 at the root. At most ``wide`` children per node and
    ``deep`` tokens."""
    out: list[tuple[int, int, float]] = []
    heap: list[tuple] = []
    serial = 0

    def offer(parent: int, nodes: Sequence[Branch], depth: int) -> None:
        nonlocal serial
        if depth >= deep:
            return
        below: dict[int, list[Branch]] = {}
        for node in nodes:
            for token, child in node.next.items():
                below.setdefault(token, []).append(child)
        counted = [(-sum(child.count for child in children), token, children) for token, children in below.items()]
        for count, token, children in sorted(counted, key=lambda one: one[:2])[:wide]:
            serial += 1
            heapq.heappush(heap, (count, depth, serial, token, parent, children))

    offer(-1, nodes, 0)
    while heap and len(out) < room:
        count, depth, _, token, parent, children = heapq.heappop(heap)
        out.append((token, parent, -count))
        offer(len(out) - 1, children, depth + 1)
    return out


def _squeeze(node: Branch) -> int:
    """Halve the frequencies below a node and drop rare nodes; return the number of nodes left."""
    left = 0
    for token, child in list(node.next.items()):
        child.count /= 2
        if child.count < 1:
            del node.next[token]
        else:
            left += 1 + _squeeze(child)
    return left
