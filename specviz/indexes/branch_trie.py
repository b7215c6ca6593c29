"""Trie of short token sequences with frequencies: the Lookahead framework of Ant Group (Zhao et al.
2312.12728)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


class Branch:
    """A node of a BranchTrie. count: frequency; next: token -> child."""

    __slots__ = ("count", "next")

    def __init__(self):
        self.count = 0.0
        self.next: dict[int, Branch] = {}


class BranchTrie:
    """Trie of all sequences of ``length`` tokens in the texts added to it. If it has more than ``most``
    nodes, all frequencies are halved and nodes with a frequency below one are dropped."""

    def __init__(self, length: int, most: int = 65_536):
        self.length = length
        self.most = most
        self.size = 0
        self.root = Branch()

    def insert(self, tokens: Sequence[int], begin: int = 0, end: int | None = None) -> None:
        """Add the sequences of a text that start at positions begin .. end - 1; those at the end of the
        text are shorter."""
        for at in range(begin, len(tokens) if end is None else end):
            node = self.root
            for token in tokens[at : at + self.length]:
                below = node.next.get(token)
                if below is None:
                    below = node.next[token] = Branch()
                    self.size += 1
                below.count += 1
                node = below
        while self.size > self.most:
            self.size = _squeeze(self.root)

    def find(self, prefix: Sequence[int]) -> Branch | None:
        """Return the node of a prefix; None if it does not occur."""
        node: Branch | None = self.root
        for token in prefix:
            node = node.next.get(token)
            if node is None:
                return None
        return node


def frequent_continuations(
    nodes: Sequence[Branch], max_depth: int, max_nodes: int, max_children: int
) -> list[tuple[int, int, float]]:
    """Return the ``max_nodes`` most frequent continuations of a prefix as a tree: (token, parent,
    frequency), parent an index into the result, -1 at the root. nodes: the prefix's node in each of several
    tries, whose frequencies are added. At most ``max_children`` children per node and ``max_depth``
    tokens."""
    out: list[tuple[int, int, float]] = []
    heap: list[tuple] = []
    serial = 0

    def offer(parent: int, nodes: Sequence[Branch], depth: int) -> None:
        nonlocal serial
        if depth >= max_depth:
            return
        below: dict[int, list[Branch]] = {}
        for node in nodes:
            for token, child in node.next.items():
                below.setdefault(token, []).append(child)
        counted = [
            (-sum(child.count for child in children), token, children) for token, children in below.items()
        ]
        for count, token, children in sorted(counted, key=lambda one: one[:2])[:max_children]:
            serial += 1
            heapq.heappush(heap, (count, depth, serial, token, parent, children))

    offer(-1, nodes, 0)
    while heap and len(out) < max_nodes:
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
