"""A matrix of tri-grams, searched: ADED (Liu et al. 2407.12021). Pairs of tokens know their likely successors; a tree search
after Monte Carlo weighs long likely continuations against rarely tried ones, and the places visited most become the draft.

The matrix begins with the tri-grams of a corpus and leans towards what is being written: the tri-grams of the last few tokens gain a
little every round. It stays in the visitor's memory. The prompt's tri-grams are counted in as well, which is ours.
"""
from __future__ import annotations

import math
import random

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.earlier_answers import Memory
from ...indexes.ngram_counts import NgramCounts
from ...indexes.trigrams import Trigrams

KEPT, WINDOW, MOST = 12, 16, 3.0  # successors of a pair, tokens that gain a round, largest score
PAIRS = 20_000  # that are remembered; the one not met for longest goes


class Matrix:
    """Pair of tokens -> {successor: score}: what was learnt, and before that what a corpus says of the pair."""

    def __init__(self, corpus: Trigrams | None = None):
        self.corpus, self.rows = corpus, {}

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, pair: tuple[int, int]) -> bool:
        return bool(self[pair])

    def __setitem__(self, pair: tuple[int, int], row: dict[int, float]) -> None:
        self.rows[pair] = row

    def __getitem__(self, pair: tuple[int, int]) -> dict[int, float]:
        """The scores of a pair's successors, to be read and written; empty where nothing is known."""
        row = self.rows.pop(pair, None)
        if row is None:
            row = dict(self.corpus.successors(pair, KEPT)) if self.corpus else {}
        self.rows[pair] = row
        if len(self.rows) > PAIRS:
            del self.rows[next(iter(self.rows))]
        return row


class Place:
    """A state of the search: the token that leads here, its score, which is its prior as it stands, visits and summed reward."""

    __slots__ = ("token", "pair", "parent", "children", "prior", "score", "visits", "reward")

    def __init__(self, token: int, pair: tuple[int, int], parent: Place | None, prior: float, score: float):
        self.token, self.pair, self.parent, self.prior, self.score = token, pair, parent, prior, score
        self.children: list[Place] = []
        self.visits, self.reward = 0, 0.0


class TrigramSearch(Drafter):
    """iterations: of the search, a round; gain: what a tri-gram of the last tokens gains a round; explore: weight of the prior;
    memory: of the visitor, where the matrix lives; corpus: what it begins with."""

    def __init__(self, iterations: int = 150, gain: float = 0.04, explore: float = 32.0, memory: Memory | None = None,
                 corpus: Trigrams | None = None):
        self.iterations, self.gain, self.explore = iterations, gain, explore
        self.matrix = (memory or Memory()).table(("tri-grams", corpus is not None), lambda: Matrix(corpus))

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        counts = NgramCounts(3)
        counts.follow(state.tokens)
        for pair in counts.after:
            if len(pair) == 2:
                known, row = counts.successors(pair, KEPT), self.matrix[pair]
                total = sum(count for _, count in known)
                for token, count in known:
                    row[token] = max(row.get(token, 0.0), count / total)
                forget(row)

    def observe(self, state: State, outcome: Outcome) -> None:
        last = state.tokens[-WINDOW:]
        for a, b, c in zip(last, last[1:], last[2:]):
            known = self.matrix[a, b]
            known[c] = min(MOST, known.get(c, 0.0) + self.gain)
            forget(known, c)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build, pair = TreeBuilder(), tuple(state.tokens[-2:])
        if budget.gamma <= 0 or len(pair) < 2 or not self.matrix[pair]:
            return build.tree()
        # the search's own dice: a draft must not depend on what the verifier will draw
        rolls = random.Random(f"{state.sampling.seed}/{len(state.tokens)}/{pair}")
        root = self.search(pair, budget.gamma, rolls)
        chosen = best_visited(root, budget.nodes, budget.width, state.stop)
        at = {id(root): -1}
        for place in chosen:
            at[id(place)] = build.add(place.token, at[id(place.parent)])
        state.note("search", iterations=self.iterations, pairs=len(self.matrix),
                   visits=[p.visits for p in chosen], priors=[round(p.prior, 4) for p in chosen])
        return build.tree()

    def search(self, pair: tuple[int, int], depth: int, rolls: random.Random) -> Place:
        """The searched tree under ``pair``, at most ``depth`` tokens deep."""
        root = Place(-1, pair, None, 1.0, 0.0)
        for _ in range(self.iterations):
            place, deep = root, 0
            while place.children:
                place, deep = self.select(place), deep + 1
            if deep < depth and (place.visits or place is root) and self.expand(place):
                place, deep = place.children[0], deep + 1
            reward = 1.0 + self.rollout(place.pair, depth - deep, rolls)
            up = place
            while up is not None:
                reward, up = reward + up.score, up.parent
            while place is not None:
                place.visits += 1
                place.reward += reward
                place = place.parent
        return root

    def select(self, place: Place) -> Place:
        """The child with the best mean reward plus a bonus for what is likely and rarely tried; an untried one first."""
        weight = (self.explore + math.log((place.visits + 9) / 8)) * math.sqrt(place.visits)
        best, found = -math.inf, place.children[0]
        for child in place.children:
            if not child.visits:
                return child
            value = child.reward / child.visits + weight * child.prior / (1 + child.visits)
            if value > best:
                best, found = value, child
        return found

    def expand(self, place: Place) -> bool:
        known = self.matrix[place.pair]
        if not known:
            return False
        place.children = [Place(token, (place.pair[1], token), place, score, score)
                          for token, score in sorted(known.items(), key=lambda item: -item[1])]
        return True

    def rollout(self, pair: tuple[int, int], depth: int, rolls: random.Random) -> float:
        """Summed scores of a random continuation, likely ones first."""
        gained = 0.0
        for _ in range(depth):
            known = self.matrix[pair]
            if not known:
                break
            token = rolls.choices(list(known), list(known.values()))[0]
            gained, pair = gained + known[token], (pair[1], token)
        return gained


def forget(row: dict[int, float], kept: int | None = None) -> None:
    """Drop the smallest scores beyond ``KEPT`` successors, but not that of ``kept``."""
    while len(row) > KEPT:
        del row[min((token for token in row if token != kept), key=row.get)]


def best_visited(root: Place, count: int, width: int, stop: frozenset[int]) -> list[Place]:
    """The places visited most, parents first (a parent is visited more often than its children)."""
    chosen, todo = [], [root]
    while todo and len(chosen) < count:
        todo.sort(key=lambda place: -place.visits)
        place = todo.pop(0)
        if place is not root:
            chosen.append(place)
        if place.token not in stop or place is root:
            todo += sorted((c for c in place.children if c.visits), key=lambda c: -c.visits)[:width]
    return chosen
