"""The chain of drafters: fixed priority, one drafter a round, and sources that are asked only where the
earlier ones have nothing."""

from __future__ import annotations

import pytest

from specviz.core import Drafter, DraftTree, Parts, Sampling
from specviz.drafters.combined.fusion import FirstSufficientDraft
from specviz.methods import catalogue
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection

from ..exactness.toys import begin, greedy, play, toy

KEY = "chain_of_drafters"


class Scripted(Drafter):
    """Drafts ``count`` copies of a token in every round from ``first`` on; counts how often it is asked."""

    def __init__(self, token: int, count: int, first: int = 0):
        self.token, self.count, self.first, self.asked, self.seen = token, count, first, 0, 0

    def propose(self, state, budget):
        self.asked += 1
        return DraftTree.chain(
            [self.token] * min(budget.gamma, self.count if state.round >= self.first else 0)
        )

    def observe(self, state, outcome):
        self.seen += 1


def test_three_sources_are_asked_in_their_order_and_all_of_them_learn():
    kit = toy(12)
    sources = [Scripted(1, 1, first=2), Scripted(2, 2, first=1), Scripted(3, 3)]
    parts = Parts(FirstSufficientDraft(*sources), Fixed(4), TokenRejection())
    state, trees = begin(parts, kit, Sampling(0.0), 20), []
    for _ in range(3):
        trees.append(play(parts, kit.target, state).tree.tokens)
    assert trees == [(3, 3, 3), (2, 2), (1,)]
    assert [one.asked for one in sources] == [3, 2, 1] and [one.seen for one in sources] == [3, 3, 3]


def test_a_draft_that_is_too_short_is_left_to_the_last_one():
    kit = toy(12)
    parts = Parts(FirstSufficientDraft(Scripted(1, 2), Scripted(2, 4), enough=3), Fixed(4), TokenRejection())
    assert play(parts, kit.target, begin(parts, kit, Sampling(0.0), 20)).tree.tokens == (2,) * 4


@pytest.mark.parametrize("then", ["draft model", "EAGLE-3"])
def test_both_parts_draft_on_a_text_that_repeats_itself_only_in_part(then):
    """A tiny random model falls into a loop: the second drafter has the rounds before it, the copy those
    inside."""
    kit, method = toy(12, share=1.0, sharp=3.0), catalogue()[KEY]
    parts = method.build(kit, **method.read_knobs({"then": then, "caution": 0}))
    state, arms = begin(parts, kit, Sampling(0.0), 40, prompt=[7, 3, 5]), set()
    while not state.done:
        play(parts, kit.target, state)
        arms |= {data["arm"] for kind, data in state.notes if kind == "arm"}
        state.notes.clear()
    assert arms == {0, 1} and state.tokens == greedy(kit.net.logits, [7, 3, 5], 40)


def test_the_same_drafter_twice_is_asked_once():
    kit, method = toy(12), catalogue()[KEY]
    parts = method.build(kit, **method.read_knobs({"first": "suffixes", "then": "suffixes"}))
    assert len(parts.drafter.drafters) == 1


def test_three_sources_by_their_knobs_draft_on_one_text():
    """The pool finds what stands twice, the copies what stands elsewhere, the model the rest."""
    kit, method = toy(12, share=1.0, sharp=3.0), catalogue()[KEY]
    knobs = {"first": "n-gram pool", "key": 6, "then": "prompt lookup", "last": "draft model", "caution": 0}
    parts = method.build(kit, **method.read_knobs(knobs))
    assert len(parts.drafter.drafters) == 3
    state, arms = begin(parts, kit, Sampling(0.0), 40, prompt=[7, 3, 5]), set()
    while not state.done:
        play(parts, kit.target, state)
        arms |= {(data["arm"], data["of"]) for kind, data in state.notes if kind == "arm"}
        state.notes.clear()
    assert {place for place, _ in arms} >= {0, 2} and {of for _, of in arms} == {3}
    assert state.tokens == greedy(kit.net.logits, [7, 3, 5], 40)


def test_a_short_match_leaves_the_round_to_the_next_source_and_says_nothing():
    kit, method = toy(12), catalogue()[KEY]
    prompt = [4, 1, 2, 9, 5, 7, 2]  # ends with one token that stands before
    for match, arm, notes in ((1, 0, {"match", "arm"}), (2, 1, {"arm"})):
        knobs = {"first": "prompt lookup", "then": "draft model", "match": match, "caution": 0}
        parts = method.build(kit, **method.read_knobs(knobs))
        state = begin(parts, kit, Sampling(0.0), 20, prompt=prompt)
        play(parts, kit.target, state)
        said = dict(state.notes)
        assert said["arm"]["arm"] == arm and notes <= said.keys() and ("match" in said) == (match == 1)


def test_the_last_source_may_copy_after_short_matches():
    kit, method = toy(12), catalogue()[KEY]
    knobs = {"first": "suffixes", "then": "prompt lookup", "match": 9, "caution": 0}
    parts = method.build(kit, **method.read_knobs(knobs))
    state = begin(parts, kit, Sampling(0.0), 20, prompt=[4, 1, 2, 9, 5, 7, 2])
    assert play(parts, kit.target, state).tree.tokens[:2] == (9, 5)


def test_each_choice_asks_for_what_it_drafts_with():
    """The places of the choices are those that need a model or a head."""
    knobs = {knob.name: knob for knob in catalogue()[KEY].knobs}
    for name in ("first", "then", "last"):
        needing = {knobs[name].value_at(place) for place, _ in knobs[name].needs}
        assert needing == {"draft model", "Medusa", "EAGLE", "EAGLE-3"}
        by = {
            knobs[name].value_at(place): need for place, need in knobs[name].needs if need.startswith("head:")
        }
        assert by == {"Medusa": "head:medusa", "EAGLE": "head:eagle", "EAGLE-3": "head:eagle3"}
    assert knobs["last"].default == "none"


@pytest.mark.parametrize("first", ["draft model", "Medusa", "EAGLE", "EAGLE-3"])
def test_a_model_may_stand_before_a_lookup(first):
    """It leaves the rounds in which its draft is too short, without a trace of that draft."""
    kit, method = toy(12, share=1.0, sharp=3.0), catalogue()[KEY]
    knobs = {"first": first, "then": "prompt lookup", "gamma": 4, "least": 0.6, "enough": 4, "caution": 0}
    parts = method.build(kit, **method.read_knobs(knobs))
    state, rounds = begin(parts, kit, Sampling(0.0), 40, prompt=[7, 3, 5]), []
    while not state.done:
        outcome = play(parts, kit.target, state)
        rounds.append((dict(state.notes)["arm"]["arm"], "match" in dict(state.notes), len(outcome.tree)))
        state.notes.clear()
    assert state.tokens == greedy(kit.net.logits, [7, 3, 5], 40)
    assert all(size >= 4 and not match for arm, match, size in rounds if arm == 0)
    if first == "draft model":
        assert {arm for arm, *_ in rounds} == {0, 1}


def test_notes_of_a_draft_that_is_not_used_are_dropped():
    class Noting(Scripted):
        def propose(self, state, budget):
            state.note("match", start=0, end=1, n=1, copied=2, source="text")
            return super().propose(state, budget)

    kit = toy(12)
    parts = Parts(FirstSufficientDraft(Noting(1, 2), Scripted(2, 4), enough=3), Fixed(4), TokenRejection())
    state = begin(parts, kit, Sampling(0.0), 20)
    play(parts, kit.target, state)
    assert [kind for kind, _ in state.notes] == ["arm"]
