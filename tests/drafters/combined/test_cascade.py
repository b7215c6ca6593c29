"""Two drafters for one draft, and one that overrides the other."""

from __future__ import annotations

from specviz.core import Budget, Drafter, DraftTree, State
from specviz.drafters.combined.cascade import Cascade
from specviz.drafters.combined.fusion import LookupOrDraft
from specviz.drafters.model.chain import DraftChain
from specviz.methods.draft_model import cs_drafting
from specviz.methods.lookup import suffix_or_draft

from ...message_codes import refuses
from ..lookup.toys import check_distribution, check_greedy, kit, play_all


class Counts(Drafter):
    """Goes on counting from the last token."""

    matched = 0

    def __init__(self, matched=0):
        self.matched = matched

    def propose(self, state, budget):
        return DraftTree.chain([state.tokens[-1] + 1 + i for i in range(budget.gamma)])


def test_the_first_tokens_are_drawn_and_the_tail_goes_on_behind_them():
    one = kit(9)
    state = State([1, 2, 3])
    tree = Cascade(DraftChain(one.open("draft")), Counts(), 2).propose(state, Budget(5))
    assert tree.draw[:2] == (0, 1) and tree.draw[2:] == (-1,) * 3 and tree.parents == (-1, 0, 1, 2, 3)
    assert tree.tokens[2:] == tuple(tree.tokens[1] + i for i in (1, 2, 3)), (
        "the tail has read the drawn tokens"
    )
    stop = State([1, 2, 3], stop=frozenset({tree.tokens[1]}))
    assert len(Cascade(DraftChain(one.open("draft")), Counts(), 2).propose(stop, Budget(5))) == 2, (
        "nothing behind an end token"
    )


def test_a_tail_must_follow_any_text():
    fixed = Counts()
    fixed.restartable = False
    with refuses(ValueError, "cascade.tail"):
        Cascade(Counts(), fixed, 2)


def test_cascaded_drafting_is_exact_and_longer_than_its_draft_model_where_the_text_repeats():
    assert check_greedy(cs_drafting.METHOD, [kit(12, 1), kit(4)], count=32) > 1.5
    check_distribution(cs_drafting.METHOD, kit(3), first=1, tail=1, inner=1)


def test_a_match_long_enough_overrides_and_a_shorter_one_leaves_the_round_to_the_other():
    state = State([1, 2])
    for matched, arm in ((5, 0), (4, 1)):
        drafter = LookupOrDraft(Counts(matched), DraftChain(kit(9).open("draft")), 5, Budget(2))
        tree = drafter.propose(state, Budget(6))
        assert len(tree) == (6, 2)[arm] and state.notes[-1] == ("arm", {"arm": arm, "of": 2})
        assert (tree.probs is None) == (arm == 0)


def test_suffixes_over_a_draft_model_use_both():
    arms = [
        data["arm"]
        for kind, data in play_all(suffix_or_draft.METHOD, kit(12, 3), [1, 2, 0, 3], 60, match=2)[2].notes
        if kind == "arm"
    ]
    assert set(arms) == {0, 1}
