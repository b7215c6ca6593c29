"""The draft tree: structure, the distribution of each node, cuts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.core import CHOSEN, IID, WITHOUT_REPLACEMENT, DraftTree, HiddenInput, Origin, TreeBuilder

from ..message_codes import refuses
from .trees import VOCAB, by_hand, grow, trees

quick = settings(max_examples=60, deadline=None, derandomize=True)


def closed(tree: DraftTree, rng_seed: int) -> list[int]:
    """Some nodes together with all they hang under."""
    some = {i for i in range(len(tree)) if (i * 2654435761 + rng_seed) % 7 < 3}
    return sorted({j for i in some for j in tree.path(i)})


@quick
@given(trees())
def test_children_paths_and_depths_agree_with_parents(tree):
    for i in range(-1, len(tree)):
        assert tree.children(i) == [
            j for j in range(len(tree)) if tree.parents[j] == i and j not in tree.probes
        ]
    for i in range(len(tree)):
        path = tree.path(i)
        assert path[-1] == i and tree.parents[path[0]] == -1 and len(path) == tree.depths[i]
        assert all(tree.parents[b] == a for a, b in zip(path, path[1:]))
    assert tree.path(-1) == []


@quick
@given(trees())
def test_distribution_is_the_conditional_given_earlier_siblings_of_the_same_draw(tree):
    for i in range(len(tree)):
        probs, k = tree.draft_probs(i), tree.draw[i]
        if k < 0:
            assert probs is None and tree.label(i) == CHOSEN
            continue
        gone = (
            {tree.tokens[j] for j in range(i) if tree.draw[j] == k}
            if tree.label(i) == WITHOUT_REPLACEMENT
            else set()
        )
        row = torch.tensor(
            [0.0 if x in gone else float(tree.probs[k][x]) for x in range(VOCAB)], dtype=torch.float64
        )
        torch.testing.assert_close(probs, row / row.sum(), atol=1e-15, rtol=0)
        assert float(probs[tree.tokens[i]]) > 0


def test_a_draw_shared_by_two_parents_counts_each_family_alone():
    probs = torch.tensor([0.5, 0.3, 0.2])
    tree, k = DraftTree().begin(probs, WITHOUT_REPLACEMENT)
    for token, parent in ((0, -1), (1, -1), (0, 0), (2, 0)):
        tree = tree.add(token, parent, k)
    torch.testing.assert_close(tree.draft_probs(2), probs)
    torch.testing.assert_close(tree.draft_probs(3), torch.tensor([0.0, 0.6, 0.4]))


def test_distribution_leaves_the_stored_rows_alone():
    tree = grow(4)
    before = tree.probs.clone()
    for i in range(len(tree)):
        tree.draft_probs(i)
    assert torch.equal(before, tree.probs) and WITHOUT_REPLACEMENT in {
        tree.label(i) for i in range(len(tree))
    }


@quick
@given(trees())
def test_builder_equals_add(tree):
    other = by_hand(tree)
    assert (tree.tokens, tree.parents, tree.draw, tree.drawn, tree.probes) == (
        other.tokens,
        other.parents,
        other.draw,
        other.drawn,
        other.probes,
    )
    assert (tree.probs is None and other.probs is None) or torch.equal(tree.probs, other.probs)


@quick
@given(trees(), st.integers(0, 1000))
def test_a_cut_that_looked_leaves_chosen_nodes_only(tree, seed):
    nodes = closed(tree, seed)
    cut = tree.keep(nodes, by_token=True)
    assert cut.tokens == tuple(tree.tokens[i] for i in nodes)
    assert [cut.label(i) for i in range(len(cut))] == [CHOSEN] * len(nodes)
    for new, old in enumerate(nodes):
        assert [cut.tokens[i] for i in cut.path(new)] == [tree.tokens[i] for i in tree.path(old)]
        assert (new in cut.probes) == (old in tree.probes)


@quick
@given(trees(), st.integers(0, 4))
def test_a_cut_by_depth_keeps_every_distribution(tree, depth):
    nodes = [i for i in range(len(tree)) if tree.depths[i] <= depth]
    cut = tree.keep(nodes, by_token=False)
    for new, old in enumerate(nodes):
        a, b = cut.draft_probs(new), tree.draft_probs(old)
        assert (a is None and b is None) or torch.equal(a, b)


@quick
@given(trees(), st.integers(0, 1000))
def test_a_blind_cut_keeps_every_distribution_or_is_refused(tree, seed):
    nodes = closed(tree, seed)
    try:
        cut = tree.keep(nodes, by_token=False)
    except ValueError:
        # some draw lost a node that came before one that stays
        assert any(
            tree.draw[i] == tree.draw[j] >= 0 and i not in nodes and j in nodes
            for j in range(len(tree))
            for i in range(j)
        )
        return
    for new, old in enumerate(nodes):
        a, b = cut.draft_probs(new), tree.draft_probs(old)
        assert (a is None and b is None) or torch.equal(a, b)


def test_cuts_that_would_lie_are_refused():
    probs = torch.tensor([0.5, 0.3, 0.2])
    tree, k = DraftTree().begin(probs, WITHOUT_REPLACEMENT)
    tree = tree.add(0, -1, k).add(1, -1, k).add(2, 0)
    with refuses(ValueError, "tree.cut_prefix"):
        tree.keep([1], by_token=False)
    with refuses(ValueError, "tree.cut_parents"):
        tree.keep([2], by_token=True)
    assert tree.keep([1], by_token=True).label(0) == CHOSEN


def test_rows_that_enter_as_states_stay_together():
    tree = DraftTree(
        (1, -1, -1),
        (-1, 0, 1),
        (-1, -1, -1),
        probes=frozenset({1, 2}),
        inputs=(HiddenInput(0, (1, 2), lambda x: x[:2]),),
    )
    assert tree.keep([0], by_token=True).inputs == ()
    assert tree.keep([0, 1, 2], by_token=True).inputs[0].nodes == (1, 2)
    with refuses(ValueError, "tree.cut_entry"):
        tree.keep([0, 1], by_token=True)
    shifted = DraftTree(
        (3, 1, -1),
        (-1, -1, 1),
        (-1,) * 3,
        probes=frozenset({2}),
        inputs=(HiddenInput(0, (2,), lambda x: x[:1]),),
    )
    assert shifted.keep([1, 2], by_token=True).inputs[0].nodes == (1,)


def test_origin_may_be_shorter_than_tokens_and_survives_a_cut():
    one, two = Origin("context", 3, 4), Origin("context", 4, 5)
    tree = DraftTree((1, 2), (-1, 0), (-1, -1), origin=(one, two)).add(3, 1)
    assert tree.keep([0, 1, 2], by_token=True).origin[:2] == (one, two)
    assert tree.keep([0, 2 - 1], by_token=True).origin == (one, two)


def test_builder_records_origin_only_when_there_is_one():
    builder = TreeBuilder()
    builder.add(1, -1)
    assert builder.tree().origin == ()
    builder.add(2, 0, origin=Origin("store", 0, 1))
    assert builder.tree().origin == (None, Origin("store", 0, 1))


@pytest.mark.parametrize("drawn", [IID, "hub"])
def test_chain(drawn):
    rows = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn_chain, chosen = DraftTree.chain([1, 2, 3], rows, drawn), DraftTree.chain([1, 2, 3])
    assert drawn_chain.parents == chosen.parents == (-1, 0, 1)
    assert [drawn_chain.label(i) for i in range(3)] == [drawn] * 3 and [
        chosen.draft_probs(i) for i in range(3)
    ] == [None] * 3
    assert all(torch.equal(drawn_chain.draft_probs(i), rows[i]) for i in range(3))
    assert len(DraftTree.chain([], rows[:0])) == 0 and DraftTree.chain([], rows[:0]).drawn == ()
