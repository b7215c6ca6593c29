"""Verifiers alone: exact distribution by enumeration, golden numbers of the literature, and what they
refuse."""

import pytest
import torch

from specviz.core import (
    CHOSEN,
    IID,
    WITHOUT_REPLACEMENT,
    DraftTree,
    IncompatibleVerifier,
    RandomStreams,
    Sampling,
    Scores,
    State,
    TreeBuilder,
)
from specviz.trees import sample_without_replacement
from specviz.verifiers import BlockVerification, TokenRejection, Traversal

from ..message_codes import refuses
from ..methods.toys import distance, probs_of, round_probs, table, target_probs

P, Q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
ONE = Sampling(1.0)


def draw_tree(probs, widths, how, state):
    """A product tree with children drawn from ``probs`` by label; ("chosen": the best tokens)."""
    build, level = TreeBuilder(), [-1]
    for width in widths:
        below = []
        for parent in level:
            path, node = [], parent
            while node >= 0:
                path.insert(0, build.tokens[node])
                node = build.parents[node]
            row = probs(path)
            if how == CHOSEN:
                tokens, draw = row.topk(width).indices.tolist(), -1
            else:
                draw = build.begin(row, how)
                tokens = (
                    sample_without_replacement(row, width, state)
                    if how == WITHOUT_REPLACEMENT
                    else [state.rng.pick("draft", row) for _ in range(width)]
                )
            below += [build.add(x, parent, draw) for x in tokens]
        level = below
    return build.tree()


def output_probs(verifier, target, draft, widths, how, depth):
    probs, accepted, _ = round_probs(
        lambda state: draw_tree(draft, widths, how, state), verifier, target, depth
    )
    return probs, accepted


@pytest.mark.parametrize("verifier", [TokenRejection(), Traversal()], ids=["token", "traversal"])
@pytest.mark.parametrize(
    "vocab,widths,how",
    [
        (6, (1, 1), IID),
        (3, (2, 1), IID),
        (3, (2, 2), WITHOUT_REPLACEMENT),
        (4, (3,), WITHOUT_REPLACEMENT),
        (4, (2, 2), CHOSEN),
    ],
)
def test_the_output_distribution_is_the_targets(verifier, vocab, widths, how):
    target = table(vocab, 1)
    draft = table(vocab, 2)
    depth = len(widths) + 1
    got, _ = output_probs(verifier, target, draft, widths, how, depth)
    assert distance(got, target_probs(target, vocab, depth)) < 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_block_is_exact_and_never_accepts_less(seed):
    target, draft = table(4, 10 + seed), table(4, 20 + seed)
    block, more = output_probs(BlockVerification(), target, draft, (1, 1, 1), IID, 4)
    _, less = output_probs(TokenRejection(), target, draft, (1, 1, 1), IID, 4)
    assert distance(block, target_probs(target, 4, 4)) < 1e-12
    assert more >= less - 1e-12


@pytest.mark.parametrize("gamma,token,block", [(2, 1.19, 1.25), (3, 1.533, 1.695), (5, 1.941170, 2.373050)])
def test_golden_accepted_lengths_of_a_stationary_chain(gamma, token, block):
    """p = (.5, .3, .2), q = (.2, .3, .5)."""
    for verifier, want in ((TokenRejection(), token), (BlockVerification(), block)):
        _, got = output_probs(verifier, lambda c: P, lambda c: Q, (1,) * gamma, IID, 1)
        assert got == pytest.approx(want, abs=1e-6)


def test_golden_accepted_lengths_of_a_two_by_two_tree():
    for verifier, want in ((TokenRejection(), 1.4924), (Traversal(), 1.5284)):
        _, got = output_probs(verifier, lambda c: P, lambda c: Q, (2, 2), WITHOUT_REPLACEMENT, 1)
        assert got == pytest.approx(want, abs=5e-5)


@pytest.mark.parametrize("k,iid,without", [(1, 0.7, 0.7), (2, 0.76, 0.82), (3, 0.808, 1.0)])
def test_golden_acceptance_at_one_node(k, iid, without):
    for how, want in ((IID, iid), (WITHOUT_REPLACEMENT, without)):
        _, got = output_probs(TokenRejection(), lambda c: P, lambda c: Q, (k,), how, 1)
        assert got == pytest.approx(want, abs=1e-12)


def test_block_is_not_contiguous():
    """x = (2, 0, 0): the first token alone fails for sure (h = 0), yet the block is always kept whole."""
    chain = DraftTree.chain([2, 0, 0], torch.stack([Q] * 3))
    scores = Scores(torch.stack([P] * 4).log())
    got = probs_of(lambda rng: BlockVerification().verify(chain, scores, State([0], ONE, rng)).path)
    assert got == {(0, 1, 2): pytest.approx(1)}
    token = probs_of(lambda rng: TokenRejection().verify(chain, scores, State([0], ONE, rng)).path)
    assert token[()] == pytest.approx(0.6)


def formula(distributions, tokens, rows):
    """Accepted-length distribution of block verification as its paper writes it, for one drafted chain."""
    n, r = len(tokens), [1.0]
    for i, x in enumerate(tokens):
        r.append(min(1.0, r[-1] * float(rows[i][x] / distributions[i][x])))
    h = []
    for i in range(1, n):
        z = float((r[i] * rows[i] - distributions[i]).clamp(min=0).sum())
        h.append(1.0 if z + 1 - r[i] < 1e-15 else z / (z + 1 - r[i]))
    h.append(r[n])
    out, left = {}, 1.0
    for length in range(n, 0, -1):
        out[length] = left * h[length - 1]
        left *= 1 - h[length - 1]
    return out | {0: left}


@pytest.mark.parametrize("seed", range(5))
def test_block_accepts_with_the_papers_chances(seed):
    source = torch.Generator().manual_seed(seed)
    distributions, rows = (
        (2 * torch.randn(n, 5, generator=source, dtype=torch.float64)).softmax(-1) for n in (4, 5)
    )
    tokens = torch.multinomial(distributions, 1, generator=source)[:, 0].tolist()
    chain, scores = DraftTree.chain(tokens, distributions), Scores(rows.log())
    got = probs_of(lambda rng: len(BlockVerification().verify(chain, scores, State([0], ONE, rng)).path))
    assert distance(got, formula(distributions, tokens, rows)) < 1e-12


def test_block_refuses_trees_and_draws_without_replacement():
    two = DraftTree((1, 2), (-1, -1), (-1, -1))
    with refuses(IncompatibleVerifier, "verifier.chains_only"):
        BlockVerification().check(two)
    with refuses(IncompatibleVerifier, "verifier.incompatible", "without_replacement"):
        BlockVerification().check(DraftTree.chain([1], P[None], WITHOUT_REPLACEMENT))
    BlockVerification().check(DraftTree.chain([1, 2]))


@pytest.mark.parametrize(
    "verifier", [TokenRejection(), Traversal(), BlockVerification()], ids=["token", "traversal", "block"]
)
def test_at_temperature_zero_the_path_is_the_targets_own(verifier):
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    distributions = torch.tensor([[0.2, 0.5, 0.3]] * 3)
    for tree in (DraftTree.chain([1, 0, 1]), DraftTree.chain([1, 0, 1], distributions)):
        verdict = verifier.verify(tree, Scores(logits), State([0], Sampling(), RandomStreams(0)))
        assert (verdict.path, verdict.token, verdict.kind) == ((0, 1), 2, "correction")
        assert [t.verdict for t in verdict.decisions] == ["accepted", "accepted", "rejected"]
        assert all(
            t.draw is None or (t.draw < t.accept) == (t.verdict == "accepted") for t in verdict.decisions
        )
        assert verdict.probs.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "verifier", [TokenRejection(), Traversal(), BlockVerification()], ids=["token", "traversal", "block"]
)
def test_a_verdict_can_be_recomputed_from_its_trials(verifier):
    target = table(5, 4)
    other = table(5, 5)
    kinds = set()

    def draft(tokens):
        return (target(tokens) + other(tokens)) / 2

    for seed in range(60):
        state = State([0], ONE, RandomStreams(seed))
        tree = draw_tree(draft, (1, 1, 1), IID, state)
        rows = [[tree.tokens[j] for j in tree.path(i)] if i >= 0 else [] for i in range(-1, 3)]
        verdict = verifier.verify(tree, Scores(torch.stack([target(r) for r in rows]).log()), state)
        for t in verdict.decisions:
            assert (t.draw is None or t.draw < t.accept) == (t.verdict == "accepted")
        assert sorted(t.node for t in verdict.decisions if t.verdict == "accepted") == sorted(verdict.path)
        kinds.add(verdict.kind)
    assert kinds == {"bonus", "correction"}


@pytest.mark.parametrize("verifier", [TokenRejection(), Traversal()], ids=["token", "traversal"])
def test_no_draft_is_plain_decoding(verifier):
    got = probs_of(
        lambda rng: verifier.verify(DraftTree(), Scores(P.log()[None]), State([0], ONE, rng)).token
    )
    assert distance(got, dict(enumerate(P.tolist()))) < 1e-12
