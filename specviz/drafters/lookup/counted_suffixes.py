"""Draft from suffix counts of the context and of past answers: SuffixDecoding (Oliaro et al. 2411.04975).

The paper uses compressed suffix trees with counts. Here a suffix automaton holds the same counts in at most
two states per token. It cannot remove single answers, so past answers are kept in two halves: when the
young half is full, the old one is dropped.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from ...core import Budget, Drafter, DraftTree, Origin, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.earlier_answers import CAPACITY, Memory
from ...indexes.suffix_automaton import SuffixAutomaton

PART = -1  # separator between answers


class PastAnswers:
    """Index of earlier answers: two suffix automata with up to ``capacity`` tokens each, so that old
    answers can be dropped. depth: length of the longest counted string; 0: any. halves: the newer and the
    older automaton."""

    def __init__(self, depth: int, capacity: int):
        self.depth = depth
        self.capacity = capacity
        self.taken = 0
        self.halves = [SuffixAutomaton(depth), SuffixAutomaton(depth)]  # young, old

    def read(self, memory: Memory) -> None:
        """Add the answers stored in ``memory`` since the last call."""
        for answer in memory.since(self.taken):
            self.add(answer)
        self.taken = memory.taken

    def add(self, tokens) -> None:
        """Add a finished answer, at most its last ``capacity`` tokens."""
        tokens = list(tokens)[-self.capacity :]
        if len(self.halves[0].text) + len(tokens) + 1 > self.capacity:
            self.halves = [SuffixAutomaton(self.depth), self.halves[0]]
        young = self.halves[0]
        young.extend([*young.text, *tokens, PART])


@dataclass(frozen=True)
class MatchedTree:
    """A draft tree found in one suffix automaton. score: expected number of accepted tokens; matched:
    length of the match, in tokens; nodes: (token, parent, path probability, position after the token in the
    source) of each node."""

    score: float
    matched: int
    nodes: tuple[tuple[int, int, float, int], ...]


def speculate(
    index: SuffixAutomaton,
    matches,
    *,
    max_nodes: int,
    factor: float,
    offset: float,
    min_prob: float,
    max_children: int,
) -> MatchedTree:
    """Return the draft tree with the highest score over all match lengths; of equal ones that with the
    longer match (SuffixDecoding).

    matches: (n, state) as from ``SuffixAutomaton.matches``. A match of n tokens may draft int(n * factor +
    offset) nodes, at most ``max_nodes``; min_prob: smallest path probability; max_children: per node, 1 for
    a chain.
    """
    best = MatchedTree(0.0, 0, ())
    for n, state in reversed(matches):
        capacity = min(max_nodes, int(n * factor + offset))
        if capacity <= best.score:  # no node scores above 1
            continue
        guess = grow_tree(index, state, n, capacity, min_prob, max_children)
        if guess.score > best.score:
            best = guess
    return best


def grow_tree(
    index: SuffixAutomaton, state: int, matched: int, capacity: int, min_prob: float, max_children: int
) -> MatchedTree:
    """Return a tree of the ``capacity`` most frequent continuations of the string of an automaton's
    ``state``, with relative frequencies as probabilities. matched: length of the match; min_prob,
    max_children: as in ``speculate``."""
    nodes: list[tuple[int, int, float, int]] = []
    heap: list[tuple] = []

    def offer(parent: int, state: int, prob: float, depth: int) -> None:
        if matched + depth >= index.depth or not index.count[state]:
            return
        counts, total = index.count, index.count[state]
        floor = min_prob * total / prob * (1 - 1e-9)  # a common token has thousands of rare successors
        after = [
            (-counts[to], token, to)
            for token, to in index.next[state].items()
            if counts[to] >= floor and token >= 0
        ]
        for count, token, to in sorted(after)[:max_children]:
            share = -prob * count / total
            if share >= min_prob:
                heapq.heappush(heap, (-share, depth, parent, token, to))

    offer(-1, state, 1.0, 0)
    while heap and len(nodes) < capacity:
        share, depth, parent, token, to = heapq.heappop(heap)
        nodes.append((token, parent, -share, index.first[to]))
        offer(len(nodes) - 1, to, -share, depth + 1)
    return MatchedTree(sum(prob for _, _, prob, _ in nodes), matched, tuple(nodes))


class CountedSuffixes(Drafter):
    """Drafter of the tree with the highest expected accepted length, from suffix counts of the context or
    of past answers (SuffixDecoding, Oliaro et al. 2411.04975).

    memory: the session's past answers; depth: longest counted string; capacity: tokens in each half of the
    past answers; other settings as in ``speculate``. matched: number of context tokens that matched before
    the last proposal.
    """

    matched = 0

    def __init__(
        self,
        memory: Memory,
        *,
        depth: int = 64,
        capacity: int = CAPACITY,
        factor: float = 1.0,
        offset: float = 0.0,
        min_prob: float = 0.1,
        max_children: int = 8,
    ):
        self.local = SuffixAutomaton(depth)
        self.memory, self.past = (
            memory,
            memory.table(("past answers", depth, capacity), lambda: PastAnswers(depth, capacity)),
        )
        self.depth, self.settings = (
            depth,
            dict(factor=factor, offset=offset, min_prob=min_prob, max_children=max_children),
        )

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.local.clear()
        self.local.extend(state.tokens)
        self.past.read(self.memory)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        if budget.gamma <= 0:
            return builder.tree()
        self.local.follow(state.tokens)
        settings = {
            **self.settings,
            "max_nodes": budget.nodes,
            "max_children": min(self.settings["max_children"], budget.width),
        }
        found = [(speculate(self.local, self.local.suffixes(self.depth), **settings), "context")]
        for half, name in zip(self.past.halves, ("answers", "older answers")):
            found.append((speculate(half, suffix_states(half, state.tokens, self.depth), **settings), name))
        guess, source = max(found, key=lambda f: f[0].score)  # ties go to the context
        add_guess(builder, guess, source, budget.gamma, state.stop)
        self.matched = guess.matched
        if len(builder):
            state.note(
                "suffix",
                source=source,
                n=guess.matched,
                score=round(guess.score, 4),
                nodes=len(builder),
                chances=[round(prob, 4) for _, _, prob, _ in guess.nodes[: len(builder)]],
            )
        return builder.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.local.extend(state.tokens)


def suffix_states(index: SuffixAutomaton, tokens, longest: int) -> list[tuple[int, int]]:
    """Return (n, state) for every suffix of ``tokens``, of length n up to ``longest``, that occurs in the
    automaton; shortest first."""
    return index.matches(*extend_match(index, tokens[-longest:]), longest)


def extend_match(index: SuffixAutomaton, tokens, state: int = 0, matched: int = 0) -> tuple[int, int]:
    """Extend a match (``state``, ``matched`` tokens) by ``tokens``; return (state, n) of the longest suffix
    of the extended text that occurs in the automaton."""
    for token in tokens:
        state, matched = index.step(state, matched, token)
    return state, matched


def add_guess(
    builder: TreeBuilder, guess: MatchedTree, source: str, max_depth: int, stop: frozenset[int]
) -> None:
    """Add the nodes of a MatchedTree to a draft tree as chosen nodes, none deeper than ``max_depth`` and
    none after an end token (``stop``). source: name of the text."""
    at = {-1: (-1, 0)}
    for position, (token, parent, _, end) in enumerate(guess.nodes):
        if parent in at and at[parent][1] < max_depth:
            node, depth = at[parent]
            new = builder.add(token, node, origin=Origin(source, end - 1, end))
            if token not in stop:
                at[position] = (new, depth + 1)
