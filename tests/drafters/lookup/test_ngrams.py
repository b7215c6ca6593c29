"""Lookups of engines and papers: what is drafted, from what, and that a memory that is emptied drafts
nothing."""

from __future__ import annotations

import random

import torch

from specviz.core import Budget, Outcome, Scores, State, Verdict
from specviz.drafters.lookup.branched_copy import BranchedCopy
from specviz.drafters.lookup.logit_successors import LogitSpecDrafter
from specviz.drafters.lookup.ngram_map import NgramMap, NgramPool
from specviz.drafters.lookup.trie_lookahead import TrieLookahead
from specviz.indexes.branch_trie import BranchTrie, frequent_continuations
from specviz.indexes.earlier_answers import Memory
from specviz.indexes.hash_pool import HashPool

KEY = list(range(20, 32))  # twelve tokens


def tree_of(drafter, tokens, budget=None, **state):
    one = State(list(tokens), **state)
    drafter.start(one, None, Scores(torch.zeros(0, 99)))
    return drafter.propose(one, budget or Budget(64))


def test_a_key_of_twelve_and_a_draft_of_forty_eight():
    text = [*KEY, *range(40, 100), *KEY]
    assert list(tree_of(NgramMap(12), text, Budget(48)).tokens) == list(range(40, 88))
    assert len(tree_of(NgramMap(12), text[1:])) == 0, "eleven tokens are not a key"
    assert len(tree_of(NgramMap(12, min_count=2), text)) == 0, "once before is not twice"
    assert list(tree_of(NgramMap(12, min_count=2), [*KEY, 1, *text], Budget(2)).tokens) == [40, 41], (
        "the latest place"
    )


def test_of_several_values_the_clearly_most_frequent_one_or_none():
    two_and_one = [*KEY, 1, 1, *KEY, 1, 1, *KEY, 2, 2, *KEY]
    assert tree_of(NgramMap(12, counted=True), two_and_one, Budget(2)).tokens == (1, 1)
    assert tree_of(NgramMap(12), two_and_one, Budget(2)).tokens == (2, 2)
    assert len(tree_of(NgramMap(12, counted=True), [*KEY, 1, 1, *KEY, 2, 2, *KEY], Budget(2))) == 0


def test_the_rolled_hash_is_the_hash_and_the_newest_follower_counts():
    rolls = random.Random(1)
    text = [rolls.randrange(9) for _ in range(400)]
    pool, known = HashPool(3), {}
    pool.add(text[:100])
    pool.add(text, 100)
    for at in range(3, len(text)):
        known[tuple(text[at - 3 : at])] = text[at]
    value = pool.hash(text[:3])
    for at in range(3, 50):
        assert pool.hash(text[at - 3 : at]) == value
        value = pool.roll_hash(value, text[at - 3], text[at])
    assert all(
        pool.next[pool.hash(key) % len(pool.next)] == token for key, token in known.items()
    ) and pool.used == len(known)
    chain = text[-3:]
    for _ in range(20):
        chain.append(known[tuple(chain[-3:])])
    assert pool.follow(text, 20) == chain[3:]
    end = pool.follow(text, 20, frozenset({chain[5]}))
    assert end == chain[3 : 3 + len(end)] and end[-1] == chain[5]


def test_the_pool_outlives_the_run_and_short_drafts_are_dropped():
    memory = Memory()
    tree_of(NgramPool(memory, 4), [1, 2, 3, 4, 5, 6, 7])
    assert tree_of(NgramPool(memory, 4), [9, 1, 2, 3, 4]).tokens == (5, 6, 7)
    assert len(tree_of(NgramPool(memory, 4, min_draft=4), [9, 1, 2, 3, 4])) == 0
    memory.clear()
    assert len(tree_of(NgramPool(memory, 4), [9, 1, 2, 3, 4])) == 0


def test_a_trie_counts_its_pieces_and_forgets_the_rare_ones():
    trie = BranchTrie(3)
    trie.insert([1, 2, 3, 1, 2, 4])
    assert trie.find([1]).count == 2 and trie.find([1, 2, 4]).count == 1 and trie.find([2, 4, 1]) is None
    assert [token for token, parent, _ in frequent_continuations([trie.find([1])], 2, 9, 9)] == [2, 3, 4]
    assert [(token, parent) for token, parent, _ in frequent_continuations([trie.find([1])], 2, 2, 9)] == [
        (2, -1),
        (3, 0),
    ]
    small = BranchTrie(2, most=6)
    for _ in range(8):
        small.insert([1, 2])
    small.insert([3, 4, 5, 6, 7])
    assert small.find([1, 2]).count >= 1 and small.find([3]) is None and small.size <= 6


def test_pieces_of_answers_stay_and_those_of_the_prompt_go():
    memory, budget = Memory(), Budget(12, 4, 12)
    drafter, state = TrieLookahead(memory, 3), State([1, 2, 3])
    drafter.start(state, None, None)
    state.tokens += [7, 8, 9, 7]
    drafter.observe(state, Outcome(None, None, Verdict((), 7, "bonus"), Budget(), (7, 8, 9, 7), (), {}))
    assert drafter.propose(state, budget).tokens == (8, 9)
    assert tree_of(TrieLookahead(memory, 3), [5, 7], budget).tokens == (8, 9)
    assert len(tree_of(TrieLookahead(memory, 3), [5, 1], budget)) == 0
    memory.clear()
    assert len(tree_of(TrieLookahead(memory, 3), [5, 7], budget)) == 0


def test_the_last_distributions_other_favourites_are_branches_made_longer_by_the_text():
    text = [
        4,
        5,
        6,
        7,
        8,
        9,
        5,
    ]  # 5 stood before, followed by 6 7 8; the distribution of the last token also liked 8 and 3
    drafter, state = LogitSpecDrafter(2, 3), State(list(text))
    row = torch.zeros(12)
    row[[5, 8, 3]] = torch.tensor([9.0, 8.0, 7.0])
    drafter.start(state, None, Scores(row[None]))
    tree = drafter.propose(state, Budget(4, 3, 9))
    paths = [
        [tree.tokens[i] for i in tree.path(node)] for node in range(len(tree)) if not tree.children(node)
    ]
    assert paths == [[6, 7, 8], [8, 9, 5], [3]]
    drafter.row = None
    assert drafter.propose(state, Budget(4, 3, 9)).tokens == (6, 7, 8)
    drafter.observe(
        State([*text, 1]), Outcome(None, Scores(torch.stack([row, -row])), None, None, (1,), (1,), {})
    )
    assert drafter.row.tolist() == (-row).tolist(), "the row that wrote the last token"


def test_one_match_with_two_continuations_is_a_fork():
    text = [1, 2, 3, 4, 1, 2, 5, 6, 1, 2]
    tree = tree_of(BranchedCopy(3, 2, 2), text, Budget(2, 2, 9))
    assert sorted(tree.tokens[i] for i in tree.children(-1)) == [3, 5]
    assert tree_of(BranchedCopy(3, 2, 1), text, Budget(2, 2, 9)).tokens == (5, 6)
    assert len(tree_of(BranchedCopy(3, 3, 2), text, Budget(2, 2, 9))) == 0, "two tokens are not three"
    assert set(tree_of(BranchedCopy(3, 2, 2), text, Budget(2, 1, 9)).parents) == {-1, 0}, (
        "a target without trees gets a chain"
    )
