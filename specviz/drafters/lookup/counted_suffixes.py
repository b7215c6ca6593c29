"""Drafts from counted suffixes of the text so far and of past answers: SuffixDecoding (Oliaro et al. 2411.04975).

The paper keeps compressed suffix trees with counts. Here the suffix automaton holds the same counts in at most two states a
token. It cannot forget one answer at a time, so past answers live in two halves: when the young half is full, the old one goes.
"""
from __future__ import annotations

import heapq
from dataclasses import dataclass

from ...core import Budget, Drafter, DraftTree, Origin, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.earlier_answers import ROOM, Memory
from ...indexes.suffix_automaton import SuffixAutomaton

PART = -1  # between answers; no token


class PastAnswers:
    """The suffixes of what earlier runs wrote, up to ``room`` tokens in each of two halves; ``depth``: longest string counted."""

    def __init__(self, depth: int, room: int):
        self.depth, self.room, self.taken = depth, room, 0
        self.halves = [SuffixAutomaton(depth), SuffixAutomaton(depth)]  # young, old

    def read(self, memory: Memory) -> None:
        """Take in the answers that were remembered since the last time."""
        for answer in memory.since(self.taken):
            self.add(answer)
        self.taken = memory.taken

    def add(self, tokens) -> None:
        """One finished answer; the newest ``room`` tokens of it."""
        tokens = list(tokens)[-self.room:]
        if len(self.halves[0].text) + len(tokens) + 1 > self.room:
            self.halves = [SuffixAutomaton(self.depth), self.halves[0]]
        young = self.halves[0]
        young.settle([*young.text, *tokens, PART])


@dataclass(frozen=True)
class Guess:
    """A tree found in one automaton: (token, parent, chance, exclusive end of the place) a node, and what is expected of it."""

    score: float
    matched: int
    nodes: tuple[tuple[int, int, float, int], ...]


def speculate(index: SuffixAutomaton, matches, *, most: int, factor: float, offset: float, least: float, wide: int) -> Guess:
    """The best guess over all match lengths, ties to the longer match.

    matches: (n, state) as from ``SuffixAutomaton.matches``. A match of n tokens may draft int(n * factor + offset) nodes, at
    most ``most``; least: smallest chance of a path; wide: most children a node, 1 for a chain.
    """
    best = Guess(0.0, 0, ())
    for n, state in reversed(matches):
        room = min(most, int(n * factor + offset))
        if room <= best.score:  # no node scores above 1
            continue
        guess = grow(index, state, n, room, least, wide)
        if guess.score > best.score:
            best = guess
    return best


def grow(index: SuffixAutomaton, state: int, matched: int, room: int, least: float, wide: int) -> Guess:
    """The ``room`` most likely continuations of ``state``, by the share of its occurrences that go on that way."""
    nodes: list[tuple[int, int, float, int]] = []
    heap: list[tuple] = []

    def offer(parent: int, state: int, prob: float, depth: int) -> None:
        if matched + depth >= index.depth or not index.count[state]:
            return
        counts, total = index.count, index.count[state]
        floor = least * total / prob * (1 - 1e-9)  # a common token has thousands of successors, nearly all of them rare
        after = [(-counts[to], token, to) for token, to in index.next[state].items() if counts[to] >= floor and token >= 0]
        for count, token, to in sorted(after)[:wide]:
            share = -prob * count / total
            if share >= least:
                heapq.heappush(heap, (-share, depth, parent, token, to))

    offer(-1, state, 1.0, 0)
    while heap and len(nodes) < room:
        share, depth, parent, token, to = heapq.heappop(heap)
        nodes.append((token, parent, -share, index.first[to]))
        offer(len(nodes) - 1, to, -share, depth + 1)
    return Guess(sum(prob for _, _, prob, _ in nodes), matched, tuple(nodes))


class CountedSuffixes(Drafter):
    """memory: of past answers; other settings as in ``speculate``; room: tokens of past answers that are counted, in each half.

    matched: how many tokens the match behind the last proposal had.
    """

    matched = 0

    def __init__(self, memory: Memory, *, depth: int = 64, room: int = ROOM, factor: float = 1.0, offset: float = 0.0,
                 least: float = 0.1, wide: int = 8):
        self.local = SuffixAutomaton(depth)
        self.memory, self.past = memory, memory.table(("past answers", depth, room), lambda: PastAnswers(depth, room))
        self.depth, self.settings = depth, dict(factor=factor, offset=offset, least=least, wide=wide)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.local.clear()
        self.local.settle(state.tokens)
        self.past.read(self.memory)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build = TreeBuilder()
        if budget.gamma <= 0:
            return build.tree()
        self.local.follow(state.tokens)
        settings = {**self.settings, "most": budget.nodes, "wide": min(self.settings["wide"], budget.width)}
        found = [(speculate(self.local, self.local.suffixes(self.depth), **settings), "context")]
        for half, name in zip(self.past.halves, ("answers", "older answers")):
            found.append((speculate(half, ends(half, state.tokens, self.depth), **settings), name))
        guess, source = max(found, key=lambda f: f[0].score)  # the context wins ties
        add_guess(build, guess, source, budget.gamma, state.stop)
        self.matched = guess.matched
        if len(build):
            state.note("suffix", source=source, n=guess.matched, score=round(guess.score, 4), nodes=len(build),
                       chances=[round(prob, 4) for _, _, prob, _ in guess.nodes[:len(build)]])
        return build.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.local.settle(state.tokens)


def ends(index: SuffixAutomaton, tokens, most: int) -> list[tuple[int, int]]:
    """(n, state) of every end of ``tokens`` up to ``most`` tokens that the automaton knows, shortest first."""
    return index.matches(*walk(index, tokens[-most:]), most)


def walk(index: SuffixAutomaton, tokens, state: int = 0, matched: int = 0) -> tuple[int, int]:
    """(state, n) of the longest end that the automaton knows of ``tokens``, read behind a string ``matched`` long in ``state``."""
    for token in tokens:
        state, matched = index.step(state, matched, token)
    return state, matched


def add_guess(build: TreeBuilder, guess: Guess, source: str, deepest: int, stop: frozenset[int]) -> None:
    """The guess as chosen nodes with their places; nothing deeper than ``deepest`` or after an end token."""
    at = {-1: (-1, 0)}
    for place, (token, parent, _, end) in enumerate(guess.nodes):
        if parent in at and at[parent][1] < deepest:
            node, depth = at[parent]
            new = build.add(token, node, origin=Origin(source, end - 1, end))
            if token not in stop:
                at[place] = (new, depth + 1)
