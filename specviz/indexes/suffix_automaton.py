"""Indexes for matching the suffix of a growing text; appended tokens can be undone.

``SuffixAutomaton`` finds the longest and all shorter matches in constant amortised time per token with at
most 2n states (Blumer et al. 1985; SAM-Decoding, Hu et al. 2411.10666). With ``depth`` it also counts the
occurrences of every string of at most that many tokens, like the suffix tree of SuffixDecoding (Oliaro et
al. 2411.04975). ``NgramIndex`` has the positions of every n-gram (CopySpec, Dumitru et al. 2502.08923),
``NgramIndexes`` those of several lengths (prompt lookup).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core import common_prefix_length


class TextIndex:
    """Base class of indexes over a growing text: the index follows another token list by removing and
    adding tokens at its end.

    A subclass implements ``_add(token)`` and ``_undo()``. A list passed to ``extend`` must only grow, so
    only its new tokens are processed; any other list (a hypothetical continuation) is compared in full.
    """

    always_reversible = False  # whether committed tokens can be undone, too

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Drop the whole text."""
        self.text: list[int] = []
        self._sure, self._home = 0, None

    def follow(self, tokens: Sequence[int]) -> None:
        """Change the indexed text to exactly ``tokens``; the change can be undone."""
        same = self._sure if tokens is self._home else 0
        if same > len(tokens):
            same = 0
        same += common_prefix_length(self.text[same:], tokens[same : len(self.text)])
        if same < self._sure and not self.always_reversible:
            self.clear()
            same = 0
        self._sure = min(self._sure, same)
        while len(self.text) > same:
            self._undo()
            self.text.pop()
        for token in tokens[same:]:
            self.text.append(token)
            self._add(token)

    def extend(self, tokens: Sequence[int]) -> None:
        """Change the indexed text to committed tokens, which will not be undone."""
        self.follow(tokens)
        self._sure, self._home = len(tokens), tokens
        self._forget()

    def _add(self, token: int) -> None:
        raise NotImplementedError

    def _undo(self) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop the undo log."""


class SuffixAutomaton(TextIndex):
    """Suffix automaton of a growing text. States are classes of substrings with the same end positions;
    state 0 is the empty string.

    next[s]: token -> state; link[s]: state of the longest suffix that occurs elsewhere too; length[s]:
    longest string of s; first[s]: where (exclusive) its first occurrence ends; count[s]: occurrences, kept
    for strings of at most ``depth`` tokens. state, matched: the longest suffix of the text that occurred
    earlier in it. Negative tokens separate documents.
    """

    def __init__(self, depth: int = 0):
        self.depth = depth
        super().__init__()

    def clear(self) -> None:
        """Drop the text and all states."""
        super().clear()
        self.next: list[dict[int, int]] = [{}]
        self.link = [-1]
        self.length = [0]
        self.first = [0]
        self.count = [0]
        self.state = self.matched = 0
        self._last = self._tail = self._tail_length = 0
        self._log: list[tuple] = []

    def __len__(self) -> int:
        return len(self.next)

    def step(self, state: int, matched: int, token: int) -> tuple[int, int]:
        """Append ``token`` to the string of length ``matched`` in ``state``; return (state, length) of the
        longest suffix of the result that is in the automaton."""
        while (
            state and matched <= self.length[self.link[state]]
        ):  # the state was split: the string belongs to its link
            state = self.link[state]
        while state and token not in self.next[state]:
            state = self.link[state]
            matched = self.length[state]
        if token in self.next[state]:
            return self.next[state][token], matched + 1
        return 0, 0

    def _add(self, token: int) -> None:
        before = (len(self.next), self._last, self.state, self.matched, self._tail, self._tail_length)
        edges: list[tuple[int, int, int | None]] = []
        # separators never match
        self.state, self.matched = self.step(self.state, self.matched, token) if token >= 0 else (0, 0)
        moved = self._grow(token, edges)
        self._log.append((before, edges, moved))
        if self.depth:
            self._recount(token)

    def _grow(self, token: int, edges: list) -> tuple[int, int] | None:
        """Append a token; ``edges`` collects overwritten edges. Return (state, old link) if a state was
        split."""
        new = self._state({}, -1, self.length[self._last] + 1, len(self.text))
        p, self._last = self._last, new
        while p >= 0 and token not in self.next[p]:
            self._edge(p, token, new, edges)
            p = self.link[p]
        if p < 0:
            self.link[new] = 0
            return None
        q = self.next[p][token]
        if self.length[p] + 1 == self.length[q]:
            self.link[new] = q
            return None
        moved = (q, self.link[q])
        clone = self._state(dict(self.next[q]), self.link[q], self.length[p] + 1, self.first[q])
        self.count[clone] = self.count[q]
        while p >= 0 and self.next[p].get(token) == q:
            self._edge(p, token, clone, edges)
            p = self.link[p]
        self.link[q] = self.link[new] = clone
        return moved

    def _state(self, after: dict[int, int], link: int, length: int, first: int) -> int:
        self.next.append(after)
        for column, value in ((self.link, link), (self.length, length), (self.first, first), (self.count, 0)):
            column.append(value)
        return len(self.next) - 1

    def _edge(self, state: int, token: int, to: int, edges: list) -> None:
        edges.append((state, token, self.next[state].get(token)))
        self.next[state][token] = to

    def _recount(self, token: int) -> None:
        """Count one more occurrence of every suffix of at most depth tokens: at most depth states, few in
        ordinary text."""
        self._tail, self._tail_length = self.step(self._tail, self._tail_length, token)
        if self._tail_length > self.depth:
            self._tail_length = self.depth
        self._tail = self._within(self._tail, self._tail_length)
        s = self._tail
        while s > 0:
            self.count[s] += 1
            s = self.link[s]
        self.count[0] += 1

    def _within(self, state: int, length: int) -> int:
        """Return the state of the suffix of this length of the strings in ``state``."""
        while state and length <= self.length[self.link[state]]:
            state = self.link[state]
        return state

    def _undo(self) -> None:
        (size, last, state, matched, tail, tail_length), edges, moved = self._log.pop()
        if self.depth:
            s = self._tail
            while s >= 0:
                self.count[s] -= 1
                s = self.link[s]
        if moved:
            self.link[moved[0]] = moved[1]
        for where, token, old in reversed(edges):
            if old is None:
                del self.next[where][token]
            else:
                self.next[where][token] = old
        for column in (self.next, self.link, self.length, self.first, self.count):
            del column[size:]
        self._last = last
        self.state = state
        self.matched = matched
        self._tail = tail
        self._tail_length = tail_length

    def _forget(self) -> None:
        self._log.clear()

    def longest(self, want: int = 1) -> tuple[int, int]:
        """Return (n, end) of the longest match: text[end-n:end] equals the last n tokens, with ``end`` the
        first such position. (0, 0) if there is none.

        If fewer than ``want`` tokens follow the longest match, a shorter match is used.
        """
        state, n = self._within(self.state, self.matched), self.matched
        while self.link[state] > 0 and len(self.text) - self.first[state] < want:
            state = self.link[state]
            n = self.length[state]
        return (n, self.first[state]) if n else (0, 0)

    def suffixes(self, max_n: int) -> list[tuple[int, int]]:
        """Return (n, state) of each suffix of the text with 1, 2, ... up to ``max_n`` tokens that occurred
        earlier."""
        return list(self.matches(self.state, self.matched, max_n))

    def matches(self, state: int, matched: int, max_n: int) -> list[tuple[int, int]]:
        """Return (n, state) of every suffix of the string of length ``matched`` in ``state``, shortest
        first, up to ``max_n`` tokens."""
        out, state = [], self._within(state, min(matched, max_n))
        for n in range(min(matched, max_n), 0, -1):
            state = self._within(state, n)
            out.append((n, state))
        return out[::-1]


class NgramIndex(TextIndex):
    """Index of a growing text: the end positions (exclusive) of every n-gram. ``places``: n-gram ->
    positions."""

    always_reversible = True

    def __init__(self, n: int):
        self.n = n
        super().__init__()

    def clear(self) -> None:
        """Drop the text and all positions."""
        super().clear()
        self.places: dict[tuple[int, ...], list[int]] = {}

    def _add(self, token: int) -> None:
        end = len(self.text)
        if end >= self.n:
            self.places.setdefault(tuple(self.text[-self.n :]), []).append(end)

    def _undo(self) -> None:
        if len(self.text) >= self.n:
            gram = tuple(self.text[-self.n :])
            self.places[gram].pop()
            if not self.places[gram]:
                del self.places[gram]

    def before(self) -> list[int]:
        """Return the end positions of earlier occurrences of the last n tokens, in order.

        Takes time linear in the number of occurrences; ``places`` is the same list, but includes the last n
        tokens themselves.
        """
        return self.places.get(tuple(self.text[-self.n :]), [])[:-1] if len(self.text) >= self.n else []

    def earliest(self) -> int:
        """Return the end position of the first earlier occurrence of the last n tokens, in constant time; 0
        if there is none."""
        places = self.places.get(tuple(self.text[-self.n :]), ()) if len(self.text) >= self.n else ()
        return places[0] if len(places) > 1 else 0

    def latest(self) -> int:
        """Return the end position of the latest earlier occurrence of the last n tokens, in constant time;
        0 if there is none."""
        places = self.places.get(tuple(self.text[-self.n :]), ()) if len(self.text) >= self.n else ()
        return places[-2] if len(places) > 1 else 0


class NgramIndexes(TextIndex):
    """Index of a growing text: the positions of every n-gram of 1 .. ``longest`` tokens."""

    always_reversible = True

    def __init__(self, longest: int):
        self.sizes = [NgramIndex(n) for n in range(1, longest + 1)]
        super().__init__()

    def clear(self) -> None:
        """Drop the text and all positions."""
        super().clear()
        for index in self.sizes:
            index.clear()
            index.text = self.text  # all share the same text

    def _add(self, token: int) -> None:
        for index in self.sizes:
            index._add(token)

    def _undo(self) -> None:
        for index in self.sizes:
            index._undo()

    def match(self, latest: bool = False) -> tuple[int, int]:
        """Return (end, n) of the longest match: text[end-n:end] equals the last n tokens, and a token
        follows it. (0, 0) if the last token is new.

        Of equally long matches the first, or with ``latest`` the last.
        """
        for index in reversed(self.sizes):
            end = index.latest() if latest else index.earliest()
            if end:
                return end, index.n
        return 0, 0
