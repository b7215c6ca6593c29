"""The Jacobi family: greedy equality, the exact distribution where tokens are drawn, what the approximate
ones may and may not do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specviz.core import Budget, DraftTree, Outcome, Parts, Sampling, Scores, State, Verdict
from specviz.drafters.parallel.blocks import JacobiTree, LexicalUnits, SampledJacobi
from specviz.drafters.parallel.jacobi import Jacobi
from specviz.methods.parallel_decoding import (
    fastcot,
    gauss_seidel_jacobi,
    jacobi,
    lexical_units,
    speculative_jacobi,
    tr_jacobi,
)
from specviz.policies import Fixed
from specviz.trees import MEDUSA, full_tree
from specviz.verifiers import TokenRejection

from ..lookup.toys import (
    FREE,
    check_distribution,
    check_greedy,
    distance,
    greedy,
    joint,
    kit,
    play_all,
    probs_of,
)

GS, SJD, TR, LUD, FAST = (
    m.METHOD for m in (gauss_seidel_jacobi, speculative_jacobi, tr_jacobi, lexical_units, fastcot)
)
GREEDY = Sampling()
PROMPTS = ([1], [1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 0])


@pytest.fixture(scope="module")
def kits():
    return [kit(vocab, seed) for vocab, seed in ((4, 0), (12, 1), (2, 3))]


@pytest.mark.parametrize(
    "method, knobs",
    [
        (GS, {}),
        (GS, {"block": 3, "fill": "prompt"}),
        (SJD, {}),
        (TR, {}),
        (TR, {"wide": 2, "chain": 1}),
    ],
)
def test_greedy(method, knobs, kits):
    assert check_greedy(method, kits, PROMPTS, 32, **knobs) > 1.1


@pytest.mark.parametrize(
    "method, knobs",
    [
        (jacobi.METHOD, {"block": 2}),
        (GS, {"block": 2}),
        (SJD, {"window": 2}),
        (TR, {"depth": 2, "nodes": 3, "wide": 2, "chain": 1}),
    ],
)
@pytest.mark.parametrize("sharp", [3.0, 0.7])
def test_distribution(method, knobs, sharp):
    check_distribution(method, kit(3, sharp=sharp), **knobs)


def test_distribution_of_a_redraw_that_forgets_its_distribution_is_wrong():
    """The negative control of speculative Jacobi: a guess tested with another distribution than its own
    biases the output."""

    class Forgetful(SampledJacobi):
        def propose(self, state, budget):
            tree = super().propose(state, budget)
            return tree if tree.probs is None else replace(tree, probs=torch.full_like(tree.probs, 1 / 3))

    one = kit(3, sharp=0.7)

    def once(rng):
        parts = Parts(Forgetful(), Fixed(2), TokenRejection())
        return tuple(play_all(None, one, (1, 2, 0), 3, FREE, rng, parts=parts)[0])

    assert distance(probs_of(once), joint(one.net, (1, 2, 0), 3)) > 1e-3


class StandsStill(TokenRejection):
    """Jacobi's own rule above temperature 0: a guess that is the target's best token is final, whatever the
    random numbers say."""

    def verify(self, tree, scores, state):
        path = []
        for node in range(len(tree)):
            if int(scores.logits[node].argmax()) != tree.tokens[node]:
                break
            path.append(node)
        probs = state.sampling.probs(scores.logits[len(path)])
        return Verdict(tuple(path), state.rng.pick("verify", probs), "bonus", (), probs)


def test_jacobis_own_rule_is_greedy_only():
    """Which is why the product tests each guess instead: that follows the distribution (test_distribution),
    this does not."""
    one = kit(3, sharp=0.7)

    def once(rng):
        return tuple(
            play_all(None, one, (1, 2, 0), 3, FREE, rng, parts=Parts(Jacobi(), Fixed(2), StandsStill()))[0]
        )

    assert distance(probs_of(once), joint(one.net, (1, 2, 0), 3)) > 1e-2
    plain = greedy(one.net, [1, 2, 0], 24)
    assert play_all(None, one, (1, 2, 0), 24, parts=Parts(Jacobi(), Fixed(2), StandsStill()))[0] == plain


def test_blocks_end_where_they_should():
    """No guess reaches beyond its block, and a block of n places takes at most n rounds."""
    one = kit(12, 1)
    _, outcomes, state = play_all(GS, one, [3, 7, 1], 40, block=4)
    grids = [data for kind, data in state.notes if kind == "grid"]
    assert all((g["at"] - 3) // 4 == (g["at"] + len(g["block"]) - 4) // 4 == g["number"] for g in grids)
    assert all(sum(g["number"] == number for g in grids) <= 4 for number in {g["number"] for g in grids})
    standing = {}
    for g in grids:  # a place to the left of the front is never guessed again
        assert g["at"] >= standing.get(g["number"], 0)
        standing[g["number"]] = g["at"]


def test_sjd_carries_what_was_drawn():
    one = kit(12, 1)
    _, outcomes, _ = play_all(SJD, one, [3, 7, 1], 24, FREE, window=4)
    assert {outcomes[0].tree.label(i) for i in range(4)} == {"chosen"}
    later = [o.tree for o in outcomes[1:] if len(o.tree)]
    assert any(tree.label(0) == "iid" for tree in later)
    for tree in later:
        labels = [tree.label(i) for i in range(len(tree))]
        assert labels == sorted(labels, reverse=True)  # drawn ones come first, fresh fillers behind them


@pytest.mark.parametrize(
    "method, knobs, sampling",
    [(jacobi.METHOD, {"block": 4}, GREEDY), (GS, {"block": 6}, GREEDY), (SJD, {"window": 4}, FREE)],
    ids=["jacobi", "gauss_seidel_jacobi", "speculative_jacobi"],
)
def test_guesses_are_what_the_pass_before_said_of_their_places(method, knobs, sampling):
    """Asked of the network without a cache: a place's guess is the target's best token there, or a draw
    from its distribution there."""
    one = kit(12, 1)
    tokens = [3, 7, 1]
    rows = []
    met = 0
    for outcome in play_all(method, one, tokens, 30, sampling, **knobs)[1]:
        tree, count = outcome.tree, min(len(rows), len(outcome.tree))
        for i in range(count):
            if sampling is FREE:
                assert torch.allclose(tree.draft_probs(i), sampling.probs(rows[i]), atol=1e-12)
            else:
                assert tree.tokens[i] == int(rows[i].argmax())
        met += count
        rows = one.net.logits([*tokens, *tree.tokens])[len(tokens) + len(outcome.verdict.path) :]
        tokens = [*tokens, *outcome.committed]
    assert met >= 5


def test_tree_places_come_from_the_refused_path():
    drafter = JacobiTree(full_tree((2, 2)), tokens_per_position=2, chain=1, match=1)
    drafter.start(State([1]), None, None)
    tree = DraftTree.chain([5, 6, 7])
    logits = torch.zeros(4, 9)
    logits[2, 3], logits[2, 4], logits[3, 8], logits[3, 2] = 9, 8, 9, 8
    drafter.observe(
        State([1, 5, 0]),
        Outcome(tree, Scores(logits), Verdict((0,), 0, "correction"), Budget(), (5, 0), (0, 1), {}),
    )
    assert drafter.places == [[3, 4], [8, 2]]
    proposed = drafter.propose(State([1, 5, 0]), Budget(2, 2, 9))
    paths = {tuple(proposed.tokens[j] for j in proposed.path(i)) for i in range(len(proposed))}
    assert paths == {(3,), (4,), (3, 8), (3, 2), (4, 8), (4, 2)}


def test_units_are_confident_runs():
    drafter = LexicalUnits(3, 0.9)
    drafter.start(State([1]), None, None)
    tree = drafter.propose(State([1], stop=frozenset({8})), Budget(4))
    assert tree.tokens == (1, 1, 1) and tree.probes == {0, 1, 2}
    logits = torch.zeros(4, 9)
    logits[0, 2], logits[1, 3], logits[2, 4], logits[3, 5] = 20, 20, 20, 1
    drafter.observe(
        State([1, 2]), Outcome(tree, Scores(logits), Verdict((), 2, "plain"), Budget(), (2,), (0,), {})
    )
    assert drafter.unit == [3, 4]
    tree = drafter.propose(State([1, 2]), Budget(4))
    assert tree.tokens == (3, 4, 2, 2, 2) and tree.probes == {2, 3, 4} and tree.children(1) == []
    logits[1, 3], logits[1, 2] = 0, 20
    drafter.start(State([1]), None, None)
    drafter.size = 0
    drafter.observe(
        State([1, 2]), Outcome(tree, Scores(logits), Verdict((), 2, "plain"), Budget(), (2,), (0,), {})
    )
    assert drafter.unit == []  # a token that repeats the one before it


def test_units_above_certainty_are_plain_decoding(kits):
    assert check_greedy(LUD, kits, PROMPTS, 24, sure=1.01) == 1
    check_distribution(LUD, kit(3), sure=1.01, blanks=2)


def test_units_are_written_unchecked(kits):
    one = kits[1]
    written, outcomes, _ = play_all(LUD, one, [3, 7, 1], 24, sure=0.0)
    assert len(written) == 24 and any(o.verdict.kind == "unchecked" for o in outcomes)
    # the first token after each unit is the target's own choice given all of it
    tokens = [3, 7, 1]
    for o in outcomes:
        tokens += o.committed[:-1]
        if o.verdict.kind != "accepted":
            assert o.committed[-1] == greedy(one.net, tokens, 1)[0]
        tokens.append(o.committed[-1])


def test_fastcot_is_exact_before_and_rough_in_the_glance(kits):
    one = kits[1]
    plain = greedy(one.net, [3, 7, 1], 40)
    written, outcomes, _ = play_all(FAST, one, [3, 7, 1], 40, rounds=5, window=6)
    before = sum(len(o.committed) for o in outcomes[:4])
    assert written[:before] == plain[:before] and len(written) == 40
    assert outcomes[4].verdict.kind == "unchecked" and len(outcomes[4].committed) == 7
    assert all(o.verdict.kind != "unchecked" for i, o in enumerate(outcomes) if i != 4)
    assert check_greedy(FAST, kits, PROMPTS, 24, rounds=1000) > 1


def test_the_published_template_of_tr_jacobi():
    assert len(MEDUSA) == 63 and [len(level) for level in MEDUSA.levels] == [10, 28, 23, 2]
    knobs = tr_jacobi.METHOD.read_knobs(tr_jacobi.METHOD.published)
    assert tr_jacobi.METHOD.build(kit(12), **knobs).drafter.shape == MEDUSA.within(5, 10) == MEDUSA


def test_unknown_places_hold_several_tokens_of_the_text_and_the_chain_is_the_first_longest_match():
    drafter, tokens = (
        JacobiTree(full_tree((4, 2)), tokens_per_position=4, chain=2, match=2),
        [1, 2, 5, 6, 1, 2, 7, 8, 1, 2],
    )
    state = State(list(tokens))
    drafter.start(state, None, None)
    tree = drafter.fill(state, Budget(2, 4, 20))
    first = [tree.tokens[i] for i in tree.children(-1)]
    assert len(set(first)) == 4 and set(first) <= set(tokens) and len(tree) == 4 + 4 * 2
    assert drafter.copy_from_context(state, Budget(2, 4, 20)).tokens == (5, 6)


def test_the_fixed_block_of_jacobi_narrows_and_the_sliding_one_does_not():
    for window, same in (("fixed", False), ("sliding", True)):
        _, outcomes, _ = play_all(jacobi.METHOD, kit(12, 1), [1, 2, 0, 3], 24, block=5, window=window)
        sizes = [len(o.tree) for o in outcomes[:6]]
        assert (set(sizes) == {5}) == same and max(sizes) == 5
