"""Trees that follow the draft's confidence or a plan, against brute force."""

import heapq
import itertools
import math

import pytest
import torch

from specviz.core import Budget, Costs, Outcome, RandomStreams, Sampling, Scores, State, Verdict
from specviz.drafters.model.chain import DraftShape
from specviz.drafters.model.confidence_trees import ConfidentTree, GreedyTree
from specviz.drafters.model.sequoia import SequoiaTree
from specviz.trees import SequoiaPlan, full_tree, sparse_tree, top_log_probs

from ...methods.toys import Rows, table, target_probs

ACCEPT = (0.6, 0.2, 0.1)


def paths(tree):
    return [tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))]


def model(vocab, seed):
    draft = table(vocab, seed)
    return Rows(lambda tokens: draft(tokens[1:]), vocab), draft


@pytest.mark.parametrize("temperature, with_temperature", [(0.0, True), (0.5, True), (0.5, False)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_confident_tree_keeps_the_most_probable_paths(seed, temperature, with_temperature):
    """With a beam that cuts nothing off: the best of all paths of the full tree. The authors score at
    temperature 1 whatever the run's is."""
    rows, draft = model(4, seed)

    def hot(tokens):
        return (draft(tokens).log() / (temperature if temperature and with_temperature else 1)).softmax(-1)

    tree = ConfidentTree(rows, beam=16, with_temperature=with_temperature).propose(
        State([0], Sampling(temperature)), Budget(gamma=3, width=4, nodes=9)
    )
    token_probs = {path: p for n in (1, 2, 3) for path, p in target_probs(hot, 4, n).items()}
    assert sorted(paths(tree)) == sorted(sorted(token_probs, key=lambda path: -token_probs[path])[:9])
    assert set(tree.draw) == {-1}


@pytest.mark.parametrize("width", [2, 99])
def test_no_rounding_makes_a_child_worth_more_than_its_parent(width):
    """A child that is as good as sure: its logit less the sum of all may be a little above nothing, and a
    cut that kept the child would lose its parent."""
    torch.manual_seed(0)
    sure = 40 * torch.rand(200, 1)
    rows = torch.cat([sure, sure - 30, sure - 60], 1)
    above = -torch.rand(200)
    found, parents, tokens = ConfidentTree(None, 200)._children(
        rows, above, Budget(width=width, nodes=90), State([0])
    )
    assert set(tokens.tolist()) == {0} and bool((found <= above[parents]).all())
    assert torch.allclose(found, above[parents], atol=1e-4)


@pytest.mark.parametrize("width, nodes", [(1, 3), (4, 90), (6, 9)])
def test_the_children_found_on_the_host_are_those_that_tensors_find(width, nodes):
    rows, worth = (
        torch.randn(5, 40, generator=torch.Generator().manual_seed(width)),
        [0.0, -1.5, -0.2, -0.7, -3.0],
    )
    tree, asked = (
        ConfidentTree(None, 5, with_temperature=True),
        (Budget(width=width, nodes=nodes), State([0], Sampling(0.7))),
    )
    found = tree._few(top_log_probs(rows, width, 0.7), worth, asked[0])
    values, parents, tokens = tree._children(rows, torch.tensor(worth), *asked)
    assert [(at, token) for _, at, token in found] == list(zip(parents.tolist(), tokens.tolist())) and len(
        found
    ) == min(nodes, 5 * width)
    assert torch.allclose(torch.tensor([value for value, _, _ in found]), values, atol=1e-5)


def test_the_confident_tree_expands_the_best_of_each_level():
    rows, draft = model(5, 4)
    tree = ConfidentTree(rows, beam=2).propose(State([0]), Budget(gamma=3, width=3, nodes=99))
    assert [tree.depths.count(d) for d in (1, 2, 3)] == [3, 6, 6]
    first = target_probs(draft, 5, 1)
    parents = {paths(tree)[tree.parents[i]] for i in range(len(tree)) if tree.depths[i] == 2}
    assert parents == set(sorted(first, key=lambda path: -first[path])[:2])


@pytest.mark.parametrize("seed", range(6))
def test_a_node_is_not_asked_for_children_that_cannot_be_kept(seed):
    """The tree is that of the full levels, cut at its nodes, and fewer rows are asked for."""
    rows, draft = model(5, seed)
    few, all_of_them = State([0]), State([0])
    tree = ConfidentTree(rows, beam=3).propose(few, Budget(gamma=5, width=3, nodes=4))
    full = ConfidentTree(rows, beam=3).propose(all_of_them, Budget(gamma=5, width=3, nodes=99))
    prob = {
        path: math.prod(float(draft(path[:n])[path[n]]) for n in range(len(path))) for path in paths(full)
    }
    assert sorted(paths(tree)) == sorted(sorted(prob, key=lambda path: -prob[path])[:4])
    assert few.notes[-1][1]["grown"] < all_of_them.notes[-1][1]["grown"]


def test_opt_tree_stops_when_a_level_promises_too_little():
    rows, draft = model(4, 2)
    token_probs = []
    hoped = [0.0]
    asked = [1]
    for depth in (1, 2, 3):
        level = target_probs(draft, 4, depth).values()
        token_probs += level
        hoped.append(sum(sorted(token_probs)[-3:]))
        asked.append(
            sum(prob > sorted(token_probs)[-3] for prob in level)
        )  # below the others nothing can be kept
    gains = [after - before for before, after in zip(hoped, hoped[1:])]
    assert gains[0] > gains[1] > gains[2] > 0 and asked[1] == 2
    for level, gain in enumerate(gains, start=1):
        grown, gain = 4 * sum(asked[:level]), gain + 1e-9
        state = State([0])
        ConfidentTree(rows, beam=16, gain=gain).propose(state, Budget(gamma=6, width=4, nodes=3))
        assert state.notes[-1][1]["grown"] == grown


def test_chains_are_grown_where_the_target_has_no_trees():
    rows, _ = model(4, 2)
    for drafter in (ConfidentTree(rows, 4), GreedyTree(rows)):
        tree = drafter.propose(State([0], Sampling(1.0), RandomStreams(1)), Budget(gamma=3, width=1, nodes=9))
        assert tree.parents == (-1, 0, 1)
        assert len(drafter.propose(State([0]), Budget(gamma=0))) == 0


@pytest.mark.parametrize("ahead", [0, 4])
def test_dyspec_grows_where_the_value_is_greatest(ahead):
    """A naive rewrite that scores every node when it needs it, at temperature 0 where nothing is random."""
    rows, draft = model(5, 6)
    tree = GreedyTree(rows, ahead).propose(State([0]), Budget(gamma=4, width=3, nodes=10))
    heap = [(-1.0, 0, ())]
    want = []
    tried = {}
    for count in itertools.count(1, 2):
        if len(want) == 10:
            break
        value, _, path = heapq.heappop(heap)
        probs = draft(list(path))
        probs[tried.setdefault(path, [])] = 0
        probs = probs / probs.sum()
        token = int(probs.argmax())
        tried[path].append(token)
        want.append((*path, token))
        if len(tried[path]) < 3:
            heapq.heappush(heap, (value * (1 - float(probs[token])), count, path))
        if len(want[-1]) < 4:
            heapq.heappush(heap, (value * float(probs[token]), count + 1, want[-1]))
    assert paths(tree) == want


def test_dyspec_draws_follow_their_distributions():
    rows, draft = model(5, 6)
    for seed in range(10):
        tree = GreedyTree(rows).propose(
            State([0], Sampling(1.0), RandomStreams(seed)), Budget(gamma=4, width=4, nodes=9)
        )
        assert len(tree) == 9
        for i in range(9):
            probs = draft([tree.tokens[j] for j in tree.path(i)[:-1]])
            probs[[tree.tokens[j] for j in tree.children(tree.parents[i]) if j < i]] = 0
            assert torch.allclose(tree.draft_probs(i), probs / probs.sum())


def test_dyspec_with_a_threshold_keeps_every_place_worth_more_than_its_share():
    """A naive rewrite at temperature 0: every place that is worth more than 1 / nodes gets its token, level
    by level."""
    rows, draft = model(5, 6)
    tree = GreedyTree(rows, layered=True).propose(State([0]), Budget(gamma=4, width=5, nodes=12))
    want, level = [], [((), 1.0)]
    while level:
        below = []
        for path, value in level:
            probs, rest = draft(list(path)), 1.0
            for token in probs.argsort(descending=True).tolist():
                if value * rest > 1 / 12 and len(path) < 4 and len(want) + len(below) < 12:
                    below.append(((*path, token), value * float(probs[token])))
                rest -= float(probs[token])
        want += [path for path, _ in below]
        level = below
    assert paths(tree) == want and len(want) > 4
    passes = GreedyTree(rows, layered=True)
    rows.score, calls = (
        (lambda given, start=0, score=rows.score: calls.append(len(given)) or score(given, start)),
        [],
    )
    passes.propose(State([0]), Budget(gamma=4, width=5, nodes=12))
    assert len(calls) <= 4, "a forward a level"


@pytest.mark.parametrize("layered", [False, True])
def test_a_draft_with_a_temperature_of_its_own_says_so_in_its_distributions(layered):
    """Also at temperature 0 of the run, where the most probable tokens would be taken otherwise."""
    rows, draft = model(5, 6)
    for sampling in (Sampling(), Sampling(1.0)):
        for drafter in (
            GreedyTree(rows, temperature=0.6, layered=layered),
            DraftShape(rows, full_tree((3, 2)), temperature=0.6),
        ):
            tree = drafter.propose(State([0], sampling, RandomStreams(3)), Budget(gamma=3, width=3, nodes=9))
            assert len(tree) > 3 and {tree.label(i) for i in range(len(tree))} == {"without_replacement"}
            probs = (draft([]).log() / 0.6).softmax(-1)
            assert torch.allclose(tree.draft_probs(0), probs)


def test_golden_values_of_sequoias_program():
    plan = SequoiaPlan(ACCEPT, 7, 4)
    got = {
        (m, levels): float(plan.value[m, levels]) for m, levels in ((4, 3), (4, 5), (8, 3), (8, 5), (8, 2))
    }
    assert got.pop((8, 2)) == -math.inf
    assert got == pytest.approx({(4, 3): 2.16, (4, 5): 2.176, (8, 3): 2.56, (8, 5): 2.7456})


def worth(shape, accept):
    prob = []
    for parent, rank in zip(shape.parents, shape.ranks):
        prob.append((prob[parent] if parent >= 0 else 1.0) * accept[rank])
    return 1 + sum(prob)


@pytest.mark.parametrize("accept", [ACCEPT, (0.1, 0.5, 0.3), (0.9, 0.0, 0.05)])
def test_sequoias_shapes_are_worth_their_value(accept):
    plan = SequoiaPlan(accept, 9, 3)
    for nodes, depth in ((1, 1), (3, 1), (5, 2), (9, 3), (4, 3)):
        shape = plan.shape(nodes, depth)
        assert len(shape) == nodes and max(shape.depths) <= depth
        places = set(zip(shape.parents, shape.ranks))
        assert all(rank == 0 or (parent, rank - 1) in places for parent, rank in places)
        assert worth(shape, accept) == pytest.approx(float(plan.value[nodes + 1, depth + 1]))


def test_with_falling_acceptance_the_program_equals_taking_the_best_places():
    accept = [0.6 * 0.4**rank for rank in range(3)]
    plan = SequoiaPlan(accept, 12, 4)
    for nodes in (1, 5, 12):
        assert float(plan.value[nodes + 1, 5]) == pytest.approx(worth(sparse_tree(3, 4, nodes), accept))


def test_sequoias_size_follows_the_costs():
    plan = SequoiaPlan(ACCEPT, 12, 4)
    assert plan.best(lambda nodes, depth: 1.0)[0] == 12
    assert plan.best(lambda nodes, depth: 1.0 + nodes)[0] == 1
    assert plan.best(lambda nodes, depth: 1.0 + 10 * depth)[1] == 1


def test_sequoia_counts_which_sibling_was_accepted_and_plans_from_it():
    rows, _ = model(5, 6)
    drafter = SequoiaTree(rows, width=2, depth=2, nodes=4)
    state = State([0], costs=Costs({1: 1.0, 4: 1.0}, {1: 0.0, 2: 0.0}))
    drafter.start(state, rows, None)
    tree = drafter.propose(state, Budget(gamma=2, width=2, nodes=4))
    assert len(tree) == 1 and state.notes[0][0] == "sequoia" and len(state.notes[0][1]["table"]) == 2
    drafter.rounds = 4
    tree = drafter.propose(state, Budget(gamma=2, width=2, nodes=4))
    assert len(tree) == 4 and state.notes[1][1]["nodes"] == 4
    hits, looks = list(drafter.hits), list(drafter.looks)
    second = tree.children(-1)[1]
    outcome = Outcome(
        tree,
        Scores(torch.zeros(5, 5)),
        Verdict((second,), 3, "correction"),
        Budget(),
        (tree.tokens[second], 3),
        (0,),
        {},
    )
    for _ in range(400):
        drafter.observe(state, outcome)
    assert drafter.hits[0] == hits[0] and drafter.hits[1] == hits[1] + 400
    assert drafter.looks[1] == looks[1] + 400
    drafter.propose(state, Budget(gamma=2, width=2, nodes=4))
    accept = state.notes[-1][1]["accept"]
    assert accept[1] > 0.9 and accept[0] < 0.1 and len(state.notes) == 3


def test_sequoia_tries_two_sizes_before_it_believes_the_costs():
    rows, _ = model(5, 6)
    for cost, want in ((0.001, 8), (5.0, 1)):
        drafter, state = SequoiaTree(rows, width=2, depth=3, nodes=8), State([0], costs=Costs())
        drafter.start(state, rows, None)
        sizes = []
        for _ in range(12):
            tree = drafter.propose(state, Budget(gamma=3, width=2, nodes=8))
            sizes.append(len(tree))
            state.costs.learn(len(tree), 1.0 + cost * len(tree), max(tree.depths), 0.0)
            drafter.observe(
                state,
                Outcome(
                    tree,
                    Scores(torch.zeros(1, 5)),
                    Verdict((0,), 3, "correction"),
                    Budget(),
                    (1, 3),
                    (0,),
                    {},
                ),
            )
        assert sizes[:8] == [2] * 4 + [8] * 4 and len(set(sizes[8:])) == 1
        assert sizes[8] == 8 if want == 8 else sizes[8] <= 2
