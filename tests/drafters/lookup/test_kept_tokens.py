"""What lookup drafters keep for later runs holds no token of a last round: a stop string may have taken it
back, unseen."""

from __future__ import annotations

import pytest

from specviz.core import Budget, Outcome, State, Verdict
from specviz.drafters.lookup.ngram_map import NgramPool
from specviz.drafters.lookup.trie_lookahead import TrieLookahead
from specviz.drafters.lookup.trigram_search import TrigramSearch
from specviz.indexes.earlier_answers import Memory

BUDGET = Budget(4, 4, 8)
DRAFTERS = {
    "trie": lambda memory: TrieLookahead(memory, 3),
    "pool": lambda memory: NgramPool(memory, 2),
    "tri-grams": lambda memory: TrigramSearch(memory=memory),
}


def play_round(drafter, state, tokens):
    state.tokens += tokens
    drafter.observe(
        state, Outcome(None, None, Verdict((), tokens[-1], "bonus"), Budget(), tuple(tokens), (), {})
    )


@pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS)
def test_a_last_round_is_not_remembered_and_the_ones_before_are(make):
    memory, state = Memory(), State([1, 2, 3])
    drafter = make(memory)
    drafter.start(state, None, None)
    play_round(drafter, state, [7, 8, 9, 7])
    drafter.propose(state, BUDGET)
    play_round(drafter, state, [20, 21, 22, 23])  # the last one

    def drafted(text):
        other = make(memory)
        other.start(State(list(text)), None, None)
        return other.propose(State(list(text)), BUDGET).tokens

    assert drafted([5, 7, 8])[:1] == (9,)
    assert drafted([5, 20, 21]) == () == drafted([6, 21, 22])


@pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS)
def test_rounds_without_a_proposal_are_caught_up(make):
    """Beside other drafters, a drafter is not asked in every round."""
    memory, state = Memory(), State([1, 2, 3])
    drafter = make(memory)
    drafter.start(state, None, None)
    play_round(drafter, state, [7, 8, 9])
    play_round(drafter, state, [14, 15, 16])
    assert drafter.propose(State([*state.tokens, 7, 8]), BUDGET).tokens[:1] == (9,)
