"""Drafting on features and behind an early exit, on the real engine: own caches, what a run leaves, whose
layers are run."""

from __future__ import annotations

import pytest
import torch

from specviz.core import (
    CHOSEN,
    IID,
    WITHOUT_REPLACEMENT,
    Budget,
    DraftTree,
    Parts,
    Sampling,
    State,
    open_run,
    play,
)
from specviz.drafters.heads.features import FeatureModel
from specviz.methods import catalogue
from specviz.methods.trained_heads.kangaroo.kangaroo_drafter import ExitAdapter
from specviz.targets.tiny import TinyTarget
from specviz.verifiers import TokenRejection

from ...exactness import broken_methods as wrong
from ...exactness.enumeration import distance, joint, probs_of_engine
from ...exactness.toys import PROMPT, begin, greedy, toy

KEYS = ("eagle", "eagle2", "kangaroo")
EAGLE, EAGLE2, KANGAROO = (catalogue()[key] for key in KEYS)
PAPER = {
    "eagle": {"nodes": 25, "depth": 5},
    "eagle2": {"top_k": 4, "depth": 5, "nodes": 20},
    "kangaroo": {"threshold": 0.0},
}


def built(method, kit, **knobs):
    return method.build(kit, **method.read_knobs(knobs or PAPER[method.key]))


def rows_of(drafter):
    return drafter.model.rows if hasattr(drafter, "model") else drafter.rows


def fresh(method, kit, tokens):
    """The drafter's cache as a new run on this text begins with it, after its first draft."""
    target = TinyTarget(kit.net, 96)
    parts = built(method, kit)
    state = State(list(tokens), Sampling(0.0))
    open_run(parts, target, state)
    parts.drafter.propose(state, Budget(1, 1, 1))
    return rows_of(parts.drafter).kv()


def drafted(parts, kit, state):
    """A round, and the drafter's rows once it has read what the round brought."""
    outcome = play(parts, kit.target, state)
    parts.drafter.propose(state, Budget(1, 1, 1))
    return outcome, rows_of(parts.drafter).kv()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_drafters_cache_is_a_fresh_prefills_after_every_round(key, temperature):
    method = catalogue()[key]
    kit = toy(6, sharp=0.5)
    taken = 0
    parts = built(method, kit)
    state = State(list(PROMPT), Sampling(temperature, seed=4), limit=50)
    open_run(parts, kit.target, state)
    while not state.done:
        outcome, held = drafted(parts, kit, state)
        taken += len(outcome.verdict.path)
        want = fresh(method, kit, state.tokens)
        assert held.shape == want.shape and float((held - want).abs().max()) < 1e-12
    assert taken > 3


@pytest.mark.parametrize("key", KEYS)
def test_a_cache_that_keeps_the_wrong_rows_is_seen(key):
    """The check above is no formality: features moved by one row, or rows of refused tokens kept, show in
    it."""
    method, kit = catalogue()[key], toy(6, sharp=0.5)
    parts = built(method, kit)
    if key == "kangaroo":
        parts.drafter._crop = lambda tokens: None
    else:
        take = parts.drafter.model.append_features
        parts.drafter.model.append_features = lambda features, tokens: take(features.roll(1, 0), tokens)
    state, worst = State(list(PROMPT), Sampling(1.0, seed=4), limit=30), 0.0
    open_run(parts, kit.target, state)
    while not state.done:
        _, held = drafted(parts, kit, state)
        want = fresh(method, kit, state.tokens)
        worst = max(worst, float((held - want).abs().max()) if held.shape == want.shape else 1.0)
    assert worst > 1e-3


@pytest.mark.parametrize("key", KEYS)
def test_a_target_that_kept_its_cache_is_drafted_for_as_well(key):
    """A second run on the same text, or on a longer one, gets few features again or none; the parts may be
    old or new."""
    method = catalogue()[key]
    kit = toy(12, sharp=3.0)
    want = greedy(kit.net.logits, PROMPT, 30)
    old = built(method, kit)
    for parts, prompt in (
        (old, PROMPT),
        (old, PROMPT),
        (old, want[:20]),
        (built(method, kit), want[:20]),
        (old, PROMPT[:4]),
    ):
        state = State(list(prompt), Sampling(0.0), limit=len(want) - len(prompt))
        open_run(parts, kit.target, state)
        assert kit.target.root == prompt[-1] and kit.target.cached_tokens == prompt[:-1]
        assert len(parts.drafter.propose(state, Budget(2, 2, 4))) > 0, "the first round has a draft"
        while not state.done:
            play(parts, kit.target, state)
        if prompt != PROMPT[:4]:
            assert state.tokens == want


@pytest.mark.parametrize("key", KEYS)
def test_what_earlier_runs_read_is_used_again(key):
    method, kit = catalogue()[key], toy(12, sharp=3.0)
    parts = built(method, kit)
    for prompt in (PROMPT, PROMPT, PROMPT + [7, 7]):
        state = State(list(prompt), Sampling(0.0), limit=6)
        open_run(parts, kit.target, state)
        parts.drafter.propose(state, Budget(1, 1, 1))
        assert rows_of(parts.drafter).first == 0
        assert float((rows_of(parts.drafter).kv() - fresh(method, kit, prompt)).abs().max()) < 1e-12


@pytest.mark.parametrize("key", KEYS)
def test_asking_twice_gives_the_same_draft_and_an_unknown_text_gives_none(key):
    kit = toy(12, sharp=3.0)
    parts = built(catalogue()[key], kit)
    state = State(list(PROMPT), Sampling(0.0), limit=40)
    open_run(parts, kit.target, state)
    for _ in range(4):
        first, second = (parts.drafter.propose(state, Budget(4, 3, 9)) for _ in range(2))
        assert first.tokens == second.tokens and first.parents == second.parents and len(first)
        if key != "kangaroo":  # its exit stands on the target, whose root is another
            assert len(parts.drafter.propose(state.fork([1, 2]), Budget(4, 3, 9))) == 0
        play(parts, kit.target, state)


@pytest.mark.parametrize("key", KEYS)
def test_a_prompt_of_one_token(key):
    """There is no feature in front of it, so EAGLE's first tree is empty; Kangaroo needs none."""
    kit = toy(12, sharp=3.0)
    parts = built(catalogue()[key], kit)
    state = State([5], Sampling(0.0), limit=12)
    open_run(parts, kit.target, state)
    assert (len(parts.drafter.propose(state, Budget(2, 2, 4))) > 0) == (key == "kangaroo")
    while not state.done:
        play(parts, kit.target, state)
    assert state.tokens == greedy(kit.net.logits, [5], 12)


def test_the_papers_tree_and_the_small_one():
    kit = toy(12)
    for knobs, levels in (
        ({"nodes": 25, "depth": 5}, [4, 8, 8, 3, 2]),
        ({}, [2, 3]),
        ({"nodes": 5, "depth": 3}, [2, 2, 1]),
        ({"nodes": 25, "depth": 2}, [4, 8]),
        ({"nodes": 1}, [1]),
    ):
        parts = EAGLE.build(kit, **EAGLE.read_knobs(knobs))
        state = State(list(PROMPT), Sampling(1.0, seed=1))
        open_run(parts, kit.target, state)
        tree = play(parts, kit.target, state).tree
        assert [tree.depths.count(depth) for depth in range(1, 6) if depth in tree.depths] == levels


def test_a_node_is_grown_from_its_own_guess():
    """The logits below each node of a tree, against the head reading the node's path one token after
    another as text."""
    kit = toy(12, sharp=1.0)
    kit.target.capture(frozenset({"final"}))
    prefill = kit.target.sync(PROMPT)
    grown = FeatureModel(kit.head("eagle"))
    head = kit.head("eagle")
    embed = kit.target.embed
    grown.start(kit.target, PROMPT, prefill)
    assert grown.sync(PROMPT)
    tree = DraftTree((3, 7, 3, 5, 9), (-1, -1, 0, 0, 2), (-1,) * 5)
    rows = [grown.score(DraftTree()).logits]
    for size, start in ((2, 0), (4, 2), (5, 4)):  # level by level, as trees are grown
        rows.append(
            grown.score(DraftTree(tree.tokens[:size], tree.parents[:size], (-1,) * size), start).logits
        )
    for node, got in zip(range(-1, 5), torch.cat(rows)):
        cache = head.open()
        cache.restart(0)
        guess = cache.read(embed(PROMPT[1:]), prefill.hidden_states["final"])[-1:]
        for step in tree.path(node):
            guess = cache.read(embed([tree.tokens[step]]), guess)
        torch.testing.assert_close(got, kit.target.head(guess)[0])


def test_eagle_draws_and_eagle2_chooses():
    """EAGLE's children say they were drawn without replacement and carry the head's distribution; EAGLE-2's
    are the head's best."""
    sampling, trees = Sampling(0.8, seed=3), {}
    for method in (EAGLE, EAGLE2):
        kit = toy(12, sharp=1.0)
        parts = built(method, kit)
        state = State(list(PROMPT), sampling)
        open_run(parts, kit.target, state)
        trees[method.key] = play(parts, kit.target, state).tree
        again = FeatureModel(kit.head("eagle"))
        target = TinyTarget(kit.net, 96)
        target.capture(frozenset({"final"}))
        again.start(target, PROMPT, target.sync(PROMPT))
        again.sync(PROMPT)
        probs = sampling.probs(again.score(type(trees[method.key])()).logits[0])
    drawn, chosen = trees["eagle"], trees["eagle2"]
    assert {drawn.label(i) for i in range(len(drawn))} == {WITHOUT_REPLACEMENT} and {
        chosen.label(i) for i in range(len(chosen))
    } == {CHOSEN}
    torch.testing.assert_close(drawn.draft_probs(0), probs)
    for node in (-1, 0):
        tokens = [drawn.tokens[child] for child in drawn.children(node)]
        assert len(set(tokens)) == len(tokens) > 2
    assert chosen.tokens[chosen.children(-1)[0]] == int(probs.argmax())


@pytest.mark.parametrize(
    "verifier, unbiased", [(TokenRejection, True), (wrong.BaseRow, False), (wrong.NoResidual, False)]
)
def test_siblings_whose_distribution_is_not_updated_are_caught(verifier, unbiased):
    """EAGLE's own tree, judged rightly and wrongly: the wrong rules write another distribution."""
    kit, sampling = toy(4, share=0.5, sharp=0.8), Sampling(1.0)
    parts = EAGLE.build(kit, nodes=3, depth=1)
    assert type(parts.verifier) is TokenRejection
    parts = Parts(parts.drafter, parts.policy, verifier())
    state = begin(parts, kit, sampling, 2)
    want = joint(kit.net.logits, state.tokens, 2, sampling, 4)
    probs, _ = probs_of_engine(parts, kit.target, state, 2, lambda *_: None, (kit.net, kit.small))
    assert (distance(probs, want) < 1e-12) == unbiased and (unbiased or distance(probs, want) > 1e-3)


def test_kangaroos_second_exit_is_where_it_is_unsure():
    kit = toy(12, sharp=3.0)
    lengths = {}
    for threshold in (0.0, 0.3, 1.0):
        parts = built(KANGAROO, kit, threshold=threshold, gamma=5)
        state, lengths[threshold] = State(list(PROMPT), Sampling(0.0), limit=30), []
        open_run(parts, kit.target, state)
        while state.left > 6:
            tree = play(parts, kit.target, state).tree
            assert {tree.label(i) for i in range(len(tree))} == {IID}
            lengths[threshold].append(len(tree))
    assert set(lengths[0.0]) == {5} and set(lengths[1.0]) == {1}


def test_kangaroo_does_not_run_the_first_layers_again(tmp_path):
    """Together one pass of all layers a round; below the exit one row a token, and the last drafted one in
    the check."""
    from ...exactness.toys import CAPABILITIES
    from ...models import tiny
    from ..lookup.toys import layered

    assert KANGAROO.needs - {"early", "head", "tap:layer"} <= CAPABILITIES
    one = layered(tmp_path, 12, 6)
    body = tiny.body(one.target)
    adapter, rows = tiny.head("kangaroo", body), []
    drafter, target = ExitAdapter(adapter), one.target
    parts, state = (
        Parts(
            drafter,
            KANGAROO.build(type("Kit", (), {"head": lambda self, kind: adapter})(), 3, 0.0).policy,
            TokenRejection(),
        ),
        State([3, 7, 1, 4], limit=20),
    )
    open_run(parts, target, state)
    drafter.propose(state, Budget(3))
    inner = target._layers

    def counted(given, x, first, end):
        rows.extend([first] * len(x))
        return inner(given, x, first, end)

    target._layers = counted
    tree = drafter.propose(state, Budget(3))
    target.score(tree)
    assert len(tree) == 3 and rows.count(adapter.exit) == 4 and rows.count(0) <= 1 + 3 + 1
    target._layers = inner
    want = greedy(one.net.logits, [3, 7, 1, 4], 20)
    while not state.done:
        play(parts, target, state)
    assert state.tokens == want
