"""Monte Carlo tree search over a tri-gram matrix: ADED (Liu et al. 2407.12021). The most visited nodes
become the draft.

The matrix is initialised with the tri-grams of a corpus and adapts to the text: tri-grams of the last
tokens gain score every round. It is kept in the visitor's memory. Tri-grams of the prompt are added, too,
which is not in the paper.
"""

from __future__ import annotations

import math
import random

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.earlier_answers import Memory
from ...indexes.ngram_counts import NgramCounts
from ...indexes.trigrams import Trigrams

KEPT = 12  # successors per pair
WINDOW = 16  # tokens updated per round
MOST = 3.0  # maximum score
PAIRS = 20_000  # maximum pairs; the least recently used is dropped


class TrigramMatrix:
    """Scores of tri-grams: token pair -> {successor: score}, initialised from a corpus and updated during
    generation. It holds at most PAIRS pairs; the least recently used one is dropped."""

    def __init__(self, corpus: Trigrams | None = None):
        self.corpus, self.rows = corpus, {}

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, pair: tuple[int, int]) -> bool:
        return bool(self[pair])

    def __setitem__(self, pair: tuple[int, int], row: dict[int, float]) -> None:
        self.rows[pair] = row

    def __getitem__(self, pair: tuple[int, int]) -> dict[int, float]:
        """Return the successor scores of a pair, a dict to be changed in place; empty if the pair is
        unknown."""
        row = self.rows.pop(pair, None)
        if row is None:
            row = dict(self.corpus.successors(pair, KEPT)) if self.corpus else {}
        self.rows[pair] = row
        if len(self.rows) > PAIRS:
            del self.rows[next(iter(self.rows))]
        return row


class SearchNode:
    """A node of the Monte Carlo tree search. pair: the last two tokens up to it; prior, score: its
    tri-gram's score; visits, reward: number of simulations through it and the sum of their rewards."""

    __slots__ = ("token", "pair", "parent", "children", "prior", "score", "visits", "reward")

    def __init__(
        self, token: int, pair: tuple[int, int], parent: SearchNode | None, prior: float, score: float
    ):
        self.token = token
        self.pair = pair
        self.parent = parent
        self.prior = prior
        self.score = score
        self.children: list[SearchNode] = []
        self.visits, self.reward = 0, 0.0


class TrigramSearch(Drafter):
    """Drafter of a tree: the most visited nodes of a Monte Carlo tree search over tri-gram scores (ADED,
    Liu et al. 2407.12021).

    iterations: simulations per round; gain: score added to each recent tri-gram per round; explore: weight
    of the prior in the exploration bonus; memory: the session's memory, which holds the scores; corpus:
    initial tri-grams."""

    def __init__(
        self,
        iterations: int = 150,
        gain: float = 0.04,
        explore: float = 32.0,
        memory: Memory | None = None,
        corpus: Trigrams | None = None,
    ):
        self.iterations = iterations
        self.gain = gain
        self.explore = explore
        self.matrix = (memory or Memory()).table(
            ("tri-grams", corpus is not None), lambda: TrigramMatrix(corpus)
        )
        self.last: list[
            int
        ] = []  # of the last round; added once the run has gone on, as a stop string may still take them back

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        counts = NgramCounts(3)
        counts.follow(state.tokens)
        for pair in counts.after:
            if len(pair) == 2:
                known, row = counts.successors(pair, KEPT), self.matrix[pair]
                total = sum(count for _, count in known)
                for token, count in known:
                    row[token] = max(row.get(token, 0.0), count / total)
                drop_lowest_scores(row)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.add_last()
        self.last = state.tokens[-WINDOW:]

    def add_last(self) -> None:
        """Add the tri-grams of the last round to the scores."""
        last, self.last = self.last, []
        for a, b, c in zip(last, last[1:], last[2:]):
            known = self.matrix[a, b]
            known[c] = min(MOST, known.get(c, 0.0) + self.gain)
            drop_lowest_scores(known, c)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        self.add_last()
        builder = TreeBuilder()
        if budget.gamma <= 0 or len(state.tokens) < 2:
            return builder.tree()
        pair = state.tokens[-2], state.tokens[-1]
        if not self.matrix[pair]:
            return builder.tree()
        # a separate random stream: the draft must not depend on the verifier's random numbers
        rng = random.Random(f"{state.sampling.seed}/{len(state.tokens)}/{pair}")
        root = self.search(pair, budget.gamma, rng)
        chosen = most_visited(root, budget.nodes, budget.width, state.stop)
        at = {id(root): -1}
        for node in chosen:
            at[id(node)] = builder.add(node.token, at[id(node.parent)])
        state.note(
            "search",
            iterations=self.iterations,
            pairs=len(self.matrix),
            visits=[p.visits for p in chosen],
            priors=[round(p.prior, 4) for p in chosen],
        )
        return builder.tree()

    def search(self, pair: tuple[int, int], depth: int, rng: random.Random) -> SearchNode:
        """Run Monte Carlo tree search over continuations of ``pair``, at most ``depth`` tokens deep; return
        the root."""
        root = SearchNode(-1, pair, None, 1.0, 0.0)
        for _ in range(self.iterations):
            node, deep = root, 0
            while node.children:
                node, deep = self.select(node), deep + 1
            if deep < depth and (node.visits or node is root) and self.expand(node):
                node, deep = node.children[0], deep + 1
            reward = 1.0 + self.rollout(node.pair, depth - deep, rng)
            up = node
            while up is not None:
                reward, up = reward + up.score, up.parent
            while node is not None:
                node.visits += 1
                node.reward += reward
                node = node.parent
        return root

    def select(self, node: SearchNode) -> SearchNode:
        """Return the child with the highest mean reward plus exploration bonus; an unvisited child first."""
        weight = (self.explore + math.log((node.visits + 9) / 8)) * math.sqrt(node.visits)
        best, found = -math.inf, node.children[0]
        for child in node.children:
            if not child.visits:
                return child
            value = child.reward / child.visits + weight * child.prior / (1 + child.visits)
            if value > best:
                best, found = value, child
        return found

    def expand(self, node: SearchNode) -> bool:
        """Add the known successors of a node as its children; return whether there are any."""
        known = self.matrix[node.pair]
        if not known:
            return False
        node.children = [
            SearchNode(token, (node.pair[1], token), node, score, score)
            for token, score in sorted(known.items(), key=lambda item: -item[1])
        ]
        return True

    def rollout(self, pair: tuple[int, int], depth: int, rng: random.Random) -> float:
        """Return the summed scores of a random continuation of ``pair``, up to ``depth`` tokens, each
        sampled in proportion to its score."""
        gained = 0.0
        for _ in range(depth):
            known = self.matrix[pair]
            if not known:
                break
            token = rng.choices(list(known), list(known.values()))[0]
            gained, pair = gained + known[token], (pair[1], token)
        return gained


def drop_lowest_scores(row: dict[int, float], kept: int | None = None) -> None:
    """Drop the successors with the lowest scores from ``row`` until KEPT are left; never the token
    ``kept``."""
    while len(row) > KEPT:
        del row[min((token for token in row if token != kept), key=row.__getitem__)]


def most_visited(root: SearchNode, count: int, width: int, stop: frozenset[int]) -> list[SearchNode]:
    """Return up to ``count`` of the most visited nodes below the root, parents before children, with at
    most ``width`` children per node and none after an end token (``stop``)."""
    chosen, todo = [], [root]
    while todo and len(chosen) < count:
        todo.sort(key=lambda node: -node.visits)
        node = todo.pop(0)
        if node is not root:
            chosen.append(node)
        if node.token not in stop or node is root:
            todo += sorted((c for c in node.children if c.visits), key=lambda c: -c.visits)[:width]
    return chosen
