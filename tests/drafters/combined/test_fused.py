"""The union of trees keeps the distributions of what was drawn; two wrong unions are seen by the exact
distribution."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.core import (
    CHOSEN,
    IID,
    WITHOUT_REPLACEMENT,
    Budget,
    Drafter,
    DraftTree,
    Parts,
    State,
    StopBelowProbability,
    TreeBuilder,
)
from specviz.drafters.combined.fusion import (
    BudgetLimited,
    DraftUnion,
    FirstSufficientDraft,
    merge_trees,
    merge_trees_with_sources,
)
from specviz.drafters.model.chain import DraftChain
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection

from ...message_codes import refuses
from ..lookup.toys import FREE, check_distribution, distance, joint, kit, play_all, probs_of


def some_tree(seed, vocab=4):
    """A compatible tree: some nodes with a draw of one or two, some with chosen children, drawn first."""
    rolls = random.Random(seed)
    build = TreeBuilder()
    todo = [-1]
    while todo and len(build) < 10:
        parent = todo.pop(0)
        if rolls.random() < 0.6:
            probs = torch.tensor([rolls.random() + 0.1 for _ in range(vocab)], dtype=torch.float64)
            how = rolls.choice([IID, WITHOUT_REPLACEMENT])
            draw = build.begin(probs / probs.sum(), how)
            tokens = (
                rolls.sample(range(vocab), 2)
                if how == WITHOUT_REPLACEMENT
                else rolls.choices(range(vocab), k=2)
            )
            todo += [build.add(t, parent, draw) for t in tokens[: rolls.randrange(1, 3)]]
        todo += [build.add(t, parent) for t in rolls.sample(range(vocab), rolls.randrange(3))]
    return build.tree()


def paths(tree):
    return [tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))]


def draws(tree):
    return [
        (tree.label(i), path, [round(x, 9) for x in tree.draft_probs(i).tolist()])
        for i, path in enumerate(paths(tree))
        if tree.label(i) != CHOSEN
    ]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_union(seeds):
    trees = [some_tree(seed) for seed in seeds]
    union, owners = merge_trees_with_sources(trees)
    for path, who in zip(paths(union), owners):
        assert who and all(path in paths(trees[k]) for k in who)
    for i in [-1, *range(len(union))]:
        kinds = [union.label(c) == CHOSEN for c in union.children(i)]
        assert kinds == sorted(kinds)  # drawn before chosen
        chosen = [union.tokens[c] for c in union.children(i) if union.label(c) == CHOSEN]
        drawn = {union.tokens[c] for c in union.children(i) if union.label(c) != CHOSEN}
        assert len(set(chosen)) == len(chosen) and not drawn & set(chosen)
    assert set(paths(union)) == {path for tree in trees for path in paths(tree)}
    # every draw is still there, twins apart, with the distribution it was drawn from
    assert sorted(draws(union)) == sorted(entry for tree in trees for entry in draws(tree))


def test_places_and_refusals():
    probe = DraftTree().add(1, -1, probe=True)
    with refuses(ValueError, "fusion.probes"):
        merge_trees([probe])
    assert len(merge_trees([])) == 0 and len(merge_trees([DraftTree(), DraftTree.chain([1, 2])])) == 2


class Chosen(Drafter):
    """Always the same chosen chain."""

    def __init__(self, *tokens):
        self.tokens = tokens

    def propose(self, state, budget):
        return DraftTree.chain(self.tokens[: budget.gamma])


def fused_parts(one, *drafters, gamma=2):
    return Parts(DraftUnion(*drafters), Fixed(gamma, 3), TokenRejection())


@pytest.mark.parametrize("others", [("chosen",), ("draft",), ("draft", "chosen")])
def test_distribution_of_fused_trees(others):
    one = kit(3)
    second = kit(3, 0, share=0.3)

    def make():
        drafters = [DraftChain(one.open("draft"))]
        drafters += [DraftChain(second.open("draft")) if kind == "draft" else Chosen(1, 2) for kind in others]
        return fused_parts(one, *drafters, gamma=1 if "draft" in others else 2)

    check_distribution(None, one, (1, 2, 0), 2, make)


class ChosenFirst(DraftUnion):
    """Wrong: the chosen sibling is tried before the drawn one, which it joins."""

    def propose(self, state, budget):
        a, b = (d.propose(state, budget) for d in self.drafters)
        if not len(a):
            return b
        build = TreeBuilder()
        draw = build.begin(a.probs[0], IID)
        build.add(b.tokens[0], -1, draw if b.tokens[0] == a.tokens[0] else -1)
        if b.tokens[0] != a.tokens[0]:
            build.add(a.tokens[0], -1, draw)
        return build.tree()


class TwinsMerged(DraftUnion):
    """Wrong: equal tokens of two draws become one node."""

    def propose(self, state, budget):
        a, b = (d.propose(state, budget) for d in self.drafters)
        union = merge_trees([a, b])
        return replace(a) if len(a) and a.tokens[0] == b.tokens[0] else union


class Drawn(Drafter):
    """One token from a distribution that never changes."""

    def __init__(self, *probs):
        self.probs = torch.tensor(probs, dtype=torch.float64)

    def propose(self, state, budget):
        if not budget.gamma:
            return DraftTree()
        return DraftTree.chain([state.rng.pick("draft", self.probs)], self.probs[None])


@pytest.mark.parametrize("wrong, second", [(ChosenFirst, "chosen"), (TwinsMerged, "draft")])
def test_wrong_unions_are_caught(wrong, second):
    one = kit(4, sharp=0.5)  # a flat distribution: what is left after a refusal is no point mass

    def probs(union):
        def once(rng):
            b = Chosen(1) if second == "chosen" else Drawn(0.1, 0.4, 0.3, 0.2)
            parts = Parts(union(Drawn(0.1, 0.7, 0.1, 0.1), b), Fixed(1, 3), TokenRejection())
            return tuple(play_all(None, one, (1, 2, 0), 2, FREE, rng, parts=parts)[0])

        return probs_of(once)

    exact = joint(one.net, (1, 2, 0), 2)
    assert distance(probs(DraftUnion), exact) < 1e-12
    assert distance(probs(wrong), exact) > 1e-4


def test_preferred_falls_back():
    first = Chosen(1)
    second = Chosen(2, 3)
    state = State([1])
    assert FirstSufficientDraft(first, second, enough=2).propose(state, Budget(4)).tokens == (2, 3)
    assert FirstSufficientDraft(first, second).propose(state, Budget(4)).tokens == (1,)


def test_a_budget_of_its_own_ends_a_draft_by_its_own_stop():
    class Told(Chosen):
        def propose(self, state, budget):
            self.budget = budget
            return super().propose(state, budget)

    reported = Told(1)
    state = State([1])
    rounds = StopBelowProbability(0.25)
    own = StopBelowProbability(0.5)
    BudgetLimited(reported, Budget(3, stop=own)).propose(state, Budget(8, stop=rounds))
    assert reported.budget.gamma == 3 and reported.budget.stop is own
    BudgetLimited(reported, Budget(3)).propose(state, Budget(2, stop=rounds))
    assert reported.budget.gamma == 2 and reported.budget.stop is rounds
