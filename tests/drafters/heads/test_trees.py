"""Trees of heads: the best tree for given ranks, the authors' tree, what a replay of ranks promises and
what the engine keeps."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from specviz.core import Budget, DraftTree, Parts, Sampling, State, open_run, play
from specviz.drafters.heads.last_state import HydraTree, MedusaTree
from specviz.drafters.heads.shapes import PUBLISHED, calibrated_shape, expected_length, shape_for_heads
from specviz.methods import catalogue
from specviz.policies.fixed import Fixed
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.trace.model_probs import DraftProbs
from specviz.training import ranks
from specviz.trees import Shape
from specviz.verifiers.token_rejection import TokenRejection

from ...exactness.toys import PROMPT, greedy
from ...models import tiny

ACCURACY = [[0.6, 0.2, 0.1], [0.5, 0.3, 0.05], [0.4, 0.1, 0.02]]


def paths(shape):
    out = {-1: ()}
    for i, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
        out[i] = (*out[parent], rank)
    return set(out.values()) - {()}


def worth(path):
    value = 1.0
    for row, rank in zip(ACCURACY, path):
        value *= row[rank]
    return value


@pytest.mark.parametrize("nodes", [1, 2, 5, 12, 39])
def test_a_calibrated_tree_is_the_best_of_its_size(nodes):
    every = [path for depth in (1, 2, 3) for path in itertools.product(range(3), repeat=depth)]
    best = sorted(map(worth, every), reverse=True)[:nodes]
    shape = calibrated_shape(ACCURACY, nodes)
    assert len(shape) == min(nodes, len(every)) and sorted(
        map(worth, paths(shape)), reverse=True
    ) == pytest.approx(best)
    assert expected_length(ACCURACY, shape) == pytest.approx(1 + sum(best))


def test_the_authors_tree():
    shape = shape_for_heads([], 0, 0)
    assert len(shape) == 63 and max(shape.depths) == 4 and shape.fanout[-1] == 10
    assert [len([p for p in PUBLISHED if len(p) == depth]) for depth in (1, 2, 3, 4)] == [10, 28, 23, 2]
    for count in range(1, 64):  # any beginning of the list is a tree
        assert len(Shape.of_paths(PUBLISHED[:count])) == count
    assert (
        len(shape_for_heads([], 5, 0)) == 5
        and len(shape_for_heads(ACCURACY, 0, 7)) == 7
        and len(shape_for_heads(ACCURACY, 4, 7)) == 4
    )
    assert len(calibrated_shape([[0.0, 0.0]], 3)) == 2, "heads that are never right still have a tree"


def test_the_size_that_pays_grows_as_rows_get_cheaper():
    def line(row):
        return {nodes: 1 + row * nodes for nodes in (1, 2, 4, 8, 16, 32)}

    sizes = [ranks.best_node_count(ACCURACY, line(row)) for row in (0.0, 0.01, 0.1, 1.0)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 32 and sizes[-1] == 1


def kit(seed=0):
    net = TinyNet(12, seed)
    target = TinyTarget(net, 128)
    return SimpleNamespace(
        net=net, target=target, vocab=12, head=lambda kind: tiny.head(kind, tiny.body(target), seed)
    )


def opened(drafter, kit, prompt=PROMPT):
    state = State(list(prompt), Sampling())
    kit.target.capture(drafter.hidden_states)
    drafter.start(state, kit.target, kit.target.sync(state.tokens))
    return state


SHAPE = calibrated_shape(ACCURACY, 9)


def test_medusas_nodes_are_the_likeliest_tokens_of_each_head_whatever_stands_above():
    one = kit()
    heads = one.head("medusa")
    for weight in heads.parameters():
        weight.mul_(6)
    drafter = MedusaTree(heads, SHAPE)
    tree = drafter.propose(opened(drafter, one), Budget(3, 10, 9))
    logits = heads(drafter.last, 3, one.target.head)
    assert len({tuple(row) for row in logits.topk(3).indices.tolist()}) == 3, (
        "a toy on which all heads say the same proves little"
    )
    assert len(tree) == 9 and tree.parents == SHAPE.parents and set(tree.draw) == {-1}
    for i, rank in enumerate(SHAPE.ranks):
        assert tree.tokens[i] == int(logits[tree.depths[i] - 1].argsort(descending=True)[rank])
    assert max(drafter.propose(State([1, 2, 3], Sampling()), Budget(1, 2, 9)).depths) == 1


@pytest.mark.parametrize("make, kind", [(MedusaTree, "medusa"), (HydraTree, "hydra")])
def test_a_heads_softmax_is_recorded_where_distributions_are(make, kind):
    """At temperature 0: softmax of the head's own logits, for every node; nothing is kept for a run that
    saves no distributions."""
    one = kit()
    drafter = make(one.head(kind), SHAPE)
    parts, state = Parts(drafter, Fixed(3, 10, 9), TokenRejection()), opened(drafter, one)
    play(parts, one.target, state)
    assert not state.draft_logits
    state.top_k_saved, last = 4, drafter.last
    outcome = play(parts, one.target, state)
    saved = {path: row for _, path, row in state.draft_logits}
    probs = DraftProbs(outcome, state)
    assert len(outcome.tree) == 9 and not state.draft_logits
    for i in range(9):
        path = tuple(outcome.tree.tokens[node] for node in outcome.tree.path(outcome.tree.parents[i]))
        row = drafter.heads(last, 3, one.target.head)[len(path)] if kind == "medusa" else saved[path]
        found = probs.of_node(i)
        assert found["softmax_q"] == pytest.approx(float(row.softmax(-1)[outcome.tree.tokens[i]]), abs=1e-6)
        assert 0 < found["softmax_q"] < 1 and len(found["top_softmax"]) == 4


def test_hydras_nodes_follow_from_the_path_above_them():
    one = kit()
    heads = one.head("hydra")
    drafter = HydraTree(heads, SHAPE)
    state = opened(drafter, one)
    tree = drafter.propose(state, Budget(3, 10, 9))
    states = kit().target
    states.capture(frozenset({"final"}))
    read = heads.prefix(states.sync(state.tokens).hidden_states["final"][None])[0, -1]
    for i, rank in enumerate(SHAPE.ranks):
        above = [state.tokens[-1], *(tree.tokens[j] for j in tree.path(tree.parents[i]))]
        inputs = torch.cat([read, *one.net.embed(above)])
        assert tree.tokens[i] == int(
            heads(len(above) - 1, inputs[None], one.target.head)[0].argsort(descending=True)[rank]
        )
    assert tree.parents == SHAPE.parents
    under = {
        tree.parents[i]: tree.tokens[i]
        for i in range(len(tree))
        if tree.depths[i] == 2 and SHAPE.ranks[i] == 0
    }
    assert len(set(under.values())) > 1, "a toy on which every parent has the same child proves little"


@pytest.mark.parametrize("make", [MedusaTree, HydraTree])
def test_a_prompt_of_one_token_has_no_state_to_read_yet(make):
    one = kit()
    drafter = make(one.head(make.__name__.removesuffix("Tree").lower()), SHAPE)
    state = opened(drafter, one, [7])
    assert drafter.propose(state, Budget(3, 10, 9)) == DraftTree()


@pytest.mark.parametrize("key", ["medusa", "hydra"])
def test_states_read_round_by_round_are_those_of_a_fresh_prefill(key):
    """After any number of rounds a run's next tree is the tree of a new run on the same text."""
    one = kit(seed=3)
    parts = catalogue()[key].build(one, nodes=20, depth=3)
    state = State(list(PROMPT), Sampling(), limit=40)
    open_run(parts, one.target, state)
    for _ in range(6):
        play(parts, one.target, state)
        other = kit(seed=3)
        fresh = catalogue()[key].build(other, nodes=20, depth=3).drafter
        again = opened(fresh, other, state.tokens)
        budget = parts.policy.plan(state)
        assert parts.drafter.propose(state, budget) == fresh.propose(again, budget)


def test_a_replay_of_ranks_earns_what_the_engine_earns():
    """Greedy: block efficiency and acceptance by position, walked over ranks and played on the engine, are
    the same numbers."""
    one = kit(seed=5)
    heads = one.head("medusa")
    shape = calibrated_shape(ACCURACY, 12)
    text = greedy(one.net.logits, PROMPT, 60)
    one.target.capture(frozenset({"final"}))
    states = one.target.sync(text).hidden_states["final"]
    answer, length = text[len(PROMPT) :], 60
    table = torch.full((3, length), ranks.NEVER)
    for place in range(length):
        at = (
            len(PROMPT) + place
        )  # the token at ``at`` is guessed by head k from the state before token at - k - 1
        for k in range(3):
            logits = heads(states[at - k - 2], 3, one.target.head)[k]
            table[k, place] = int((logits > logits[answer[place]]).sum())
    found = ranks.replay_tree_rounds([table], shape)
    fresh = kit(seed=5)
    parts = catalogue()["medusa"].build(fresh, nodes=12, depth=3)
    parts.drafter.shape = shape
    state = State(list(PROMPT), Sampling(), limit=60)
    accepted = 0
    rounds = 0
    open_run(parts, fresh.target, state)
    while not state.done:
        outcome = play(parts, fresh.target, state)
        accepted, rounds = accepted + len(outcome.committed), rounds + 1
    assert state.tokens == text and accepted > rounds
    assert found["block_efficiency"] == pytest.approx(60 / rounds, abs=1e-3)
