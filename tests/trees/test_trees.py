"""Shapes, growth and draws, against brute force."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from specviz.core import Sampling, State
from specviz.trees import (
    RECYCLING,
    Shape,
    chosen_children,
    drawn_children,
    full_tree,
    grow_shape,
    sample_token,
    sample_without_replacement,
    sparse_tree,
    top_k,
    top_k_entries,
)

from ..methods.toys import Rows, distance, probs_of


def test_the_recycling_template_is_the_papers():
    assert [len(level) for level in RECYCLING.levels] == [8, 21, 25, 15, 8, 3]
    assert RECYCLING.fanout[-1] == 8 and max(RECYCLING.ranks) == 7


def test_shapes_are_closed_under_parents_and_earlier_siblings():
    for shape in (RECYCLING, sparse_tree(3, 4, 12), sparse_tree(8, 6, 40), full_tree((4, 2, 2))):
        places = set(zip(shape.parents, shape.ranks))
        assert len(places) == len(shape)
        for i, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
            assert parent < i and (rank == 0 or (parent, rank - 1) in places)
        assert sorted(itertools.chain(*shape.levels)) == list(range(len(shape)))


def test_sparse_holds_the_places_of_greatest_chance():
    """Against a sort of all places of the full tree by their chance."""

    def prob(path):
        out = 1.0
        for rank in path:
            out *= 0.6 * 0.4**rank
        return out

    full = [p for depth in (1, 2, 3) for p in itertools.product(range(3), repeat=depth)]
    shape = sparse_tree(3, 3, 9)
    paths = []
    for parent, rank in zip(shape.parents, shape.ranks):
        paths.append((paths[parent] if parent >= 0 else ()) + (rank,))
    assert sorted(map(prob, paths)) == pytest.approx(sorted(sorted(map(prob, full))[-9:]))


def test_within_cuts_by_place_only():
    cut = RECYCLING.within(2, 3)
    assert [len(level) for level in cut.levels] == [3, 9]
    assert RECYCLING.within(1, 1) == Shape((-1,), (0,)) and len(RECYCLING.within(0, 4)) == 0
    assert full_tree((2, 3)).within(2, 2) == full_tree((2, 2))


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_best_is_topk(rows):
    logits = torch.randn(rows, 4096, generator=torch.Generator().manual_seed(rows))
    values, tokens = top_k(logits, 8)
    assert torch.equal(values, logits.topk(8).values) and torch.equal(tokens, logits.topk(8).indices)


def test_draws_without_replacement_follow_the_sequential_distribution():
    probs = torch.tensor([0.5, 0.3, 0.0, 0.2], dtype=torch.float64)
    got = probs_of(lambda rng: tuple(sample_without_replacement(probs, 3, SimpleNamespace(rng=rng))))
    want = {}
    for seq in itertools.permutations((0, 1, 3)):
        prob, left = 1.0, 1.0
        for x in seq:
            prob *= float(probs[x]) / left
            left -= float(probs[x])
        want[seq] = prob
    assert distance(got, want) < 1e-12
    assert probs.tolist() == [0.5, 0.3, 0.0, 0.2]  # the caller's distribution is not written to


def test_draws_stop_where_the_distribution_ends():
    probs = torch.tensor([0.0, 0.7, 0.3])
    assert all(
        sorted(seq) == [1, 2]
        for seq in probs_of(lambda rng: tuple(sample_without_replacement(probs, 5, SimpleNamespace(rng=rng))))
    )


def test_draw_one_is_the_sampling_distribution():
    logits = torch.randn(6, generator=torch.Generator().manual_seed(0)).double()
    for sampling in (Sampling(), Sampling(0.7, top_p=0.8)):
        want = sampling.probs(logits)
        assert torch.equal(sample_token(logits, State([0], sampling))[1], want)
        got = probs_of(lambda rng, sampling=sampling: sample_token(logits, State([0], sampling, rng))[0])
        assert distance(got, {i: p for i, p in enumerate(want.tolist()) if p}) < 1e-12


def hash_law(vocab):
    def probs(tokens):
        source = torch.Generator().manual_seed(sum(7**i * (x + 1) for i, x in enumerate(tokens[-3:])))
        return torch.rand(vocab, generator=source, dtype=torch.float64).softmax(-1)

    return probs


@pytest.mark.parametrize("drawn", [False, True])
def test_growth_scores_only_nodes_with_children_and_keeps_honest_distributions(drawn):
    probs, model = hash_law(6), Rows(hash_law(6), 6)
    state, shape = State([1, 4, 2], Sampling(1.0, seed=3)), sparse_tree(3, 3, 9)
    model.sync(state.tokens)
    tree = grow_shape(model, shape, state, drawn_children if drawn else chosen_children)
    assert tree.parents == shape.parents
    inner = len(set(shape.parents))  # nodes with children, the root among them
    assert model.rows <= inner + 1  # the root is scored again with the first level
    for i in range(len(tree)):
        before = [tree.tokens[j] for j in tree.path(i)[:-1]]
        row = probs(state.tokens + before)
        older = [tree.tokens[j] for j in tree.children(tree.parents[i]) if j < i]
        if drawn:
            row[older] = 0
            assert torch.allclose(tree.draft_probs(i), row / row.sum(), atol=1e-12)
        else:
            assert tree.draft_probs(i) is None
            assert tree.tokens[i] == row.argsort(descending=True)[len(older)]


@pytest.mark.parametrize("rows,width", [(1, 4096), (40, 4096), (5, 30)])
def test_best_of_all_is_topk_of_the_whole(rows, width):
    scores = torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))
    values, at, columns = top_k_entries(scores, 64)
    want = scores.flatten().topk(64)
    assert torch.equal(values, want.values) and torch.equal(at * width + columns, want.indices)
