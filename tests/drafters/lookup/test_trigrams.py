"""ADED: the matrix, the search, greedy equality and the exact distribution."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from specviz.core import Budget, State
from specviz.drafters.lookup.trigram_search import (
    KEPT,
    MOST,
    PAIRS,
    TrigramMatrix,
    TrigramSearch,
    most_visited,
)
from specviz.indexes.earlier_answers import Memory
from specviz.indexes.suffix_array import PART
from specviz.indexes.trigrams import Trigrams
from specviz.methods.lookup import aded

from .toys import check_distribution, check_greedy, kit, play_all


def started(tokens, **settings):
    drafter = TrigramSearch(**settings)
    drafter.start(State(list(tokens)), None, None)
    return drafter


def test_matrix_of_the_prompt():
    drafter = started([1, 2, 3, 1, 2, 3, 1, 2, 4])
    assert drafter.matrix[1, 2] == {3: 2 / 3, 4: 1 / 3}
    assert (2, 4) not in drafter.matrix


def test_matrix_gains_and_stays_bounded():
    drafter, state = started([5, 6]), State([1, 2, 3])
    for _ in range(100):
        drafter.observe(state, None)
    drafter.add_last()
    assert drafter.matrix[1, 2] == {3: MOST}
    for token in range(40):
        drafter.observe(State([1, 2, token]), None)
        drafter.add_last()
        assert len(drafter.matrix[1, 2]) <= KEPT and token in drafter.matrix[1, 2]


def test_search_visits():
    drafter = started([1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2, 3])
    root = drafter.search((1, 2), 3, random.Random(1))
    assert root.visits == drafter.iterations == sum(c.visits for c in root.children)
    todo = list(root.children)
    for place in todo:
        assert place.visits >= sum(c.visits for c in place.children)
        todo += place.children
    chosen = most_visited(root, 5, 12, frozenset())
    assert all(p.parent is root or p.parent in chosen for p in chosen)
    assert chosen[0].token == 3 and root.children[0].visits > root.children[1].visits


def value(matrix, place, explore=32.0):
    """The published score of a child, from its parent's visits and its own."""
    up = place.parent
    bonus = (
        (explore + math.log((up.visits + 9) / 8))
        * math.sqrt(up.visits)
        * matrix[up.pair][place.token]
        / (1 + place.visits)
    )
    return place.reward / place.visits + bonus


def test_the_search_selects_by_the_published_score():
    """After any number of steps the next child is the one with the best mean reward plus bonus; an untried
    one goes first."""
    drafter = started([1, 2, 3, 1, 2, 3, 1, 2, 4, 5, 1, 2, 6, 1, 2, 3], explore=2.0)
    for steps in range(1, 60):
        drafter.iterations = steps
        root = drafter.search((1, 2), 3, random.Random(1))
        untried = [c for c in root.children if not c.visits]
        best = untried[0] if untried else max(root.children, key=lambda c: value(drafter.matrix, c, 2.0))
        assert drafter.select(root) is best


def test_a_visit_is_worth_what_its_path_scores_and_promises():
    """One step: the first child gains 1, its own score, and the scores of a random way on from there."""
    drafter = started([1, 2, 3, 4, 5, 6], iterations=1)
    root = drafter.search((1, 2), 4, random.Random(1))
    assert root.children[0].reward == root.reward == 1 + 4 * 1.0  # 3, and 4, 5, 6 behind it, each certain
    drafter.matrix[2, 3] = {4: 0.5}
    assert drafter.search((1, 2), 2, random.Random(1)).reward == 1 + 1.0 + 0.5


def test_budget_and_end_tokens():
    text = [1, 2, 3, 4, 1, 2, 4, 1, 1, 2]
    drafter = started(text)
    tree = drafter.propose(State(list(text)), Budget(2, 1, 8))
    assert max(tree.depths) <= 2 and all(len(tree.children(i)) <= 1 for i in range(-1, len(tree)))
    assert len(drafter.propose(State(list(text)), Budget(4, 12, 3))) <= 3
    tree = drafter.propose(State(list(text), stop=frozenset({3, 4})), Budget(4, 12, 16))
    assert sorted(tree.tokens) == [3, 4] and set(tree.parents) == {-1}
    assert drafter.propose(State(list(text)), Budget(4, 12, 9)) == drafter.propose(
        State(list(text)), Budget(4, 12, 9)
    )


@pytest.mark.parametrize("prompt", [[1], [1, 1], [1, 1, 1, 1, 1]])
def test_small_prompts(prompt):
    drafter = started(prompt)
    tree = drafter.propose(State(list(prompt)), Budget(3, 4, 8))
    assert set(tree.tokens) <= {1} and (len(tree) > 0) == (len(prompt) > 2)


def test_the_matrix_begins_with_a_corpus_and_outlives_the_run():
    """A prompt that says nothing of the pair (7, 8): a library does, and what a run adds to it is there in
    the next one."""
    corpus = Trigrams(np.concatenate([np.array([7, 8, token, PART], np.uint32) for token in (9, 9, 9, 4)]))
    assert (
        len(corpus) == 2
        and corpus.successors((7, 8), 12) == [(9, 0.75), (4, 0.25)]
        and corpus.successors((8, 9), 12) == []
    )
    assert len(started([5, 7, 8]).propose(State([5, 7, 8]), Budget(3, 4, 8))) == 0
    memory = Memory()
    drafter = started([5, 7, 8], memory=memory, corpus=corpus)
    assert drafter.propose(State([5, 7, 8]), Budget(3, 4, 8)).tokens == (9, 4)
    for _ in range(40):
        drafter.observe(State([7, 8, 4]), None)
    drafter.add_last()
    again = started([5, 7, 8], memory=memory, corpus=corpus)
    assert again.matrix[7, 8] == {9: 0.75, 4: pytest.approx(0.25 + 40 * 0.04)}
    assert again.propose(State([5, 7, 8]), Budget(3, 4, 1)).tokens == (4,)


def test_the_memory_of_the_matrix_is_bounded():
    matrix = TrigramMatrix()
    for i in range(PAIRS + 5):
        matrix[i, 0][1] = 1.0
    assert len(matrix) == PAIRS and (0, 0) not in matrix.rows and (PAIRS + 4, 0) in matrix.rows


def test_greedy():
    kits = [kit(vocab, seed) for vocab, seed in ((4, 0), (12, 1), (2, 3))]
    assert (
        check_greedy(
            aded.METHOD,
            kits,
            ([1], [1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 0]),
            32,
            iterations=40,
            start="prompt",
        )
        > 1.2
    )


def test_distribution():
    check_distribution(aded.METHOD, kit(3), iterations=10, nodes=4, depth=2, start="prompt")


def test_visits_are_reported():
    _, outcomes, state = play_all(
        aded.METHOD, kit(4), [1, 2, 0, 1, 2, 0, 1], 12, iterations=20, start="prompt"
    )
    reported = [data for kind, data in state.notes if kind == "search"]
    assert len(reported) == sum(len(o.tree) > 0 for o in outcomes) > 0
    assert [len(t["visits"]) for t in reported] == [len(o.tree) for o in outcomes if len(o.tree)]
