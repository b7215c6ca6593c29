"""Verifiers alone: drafting and judging enumerated together on random distributions, and the reference's
golden numbers."""

from __future__ import annotations

import functools

import pytest
import torch

from specviz.core import (
    CHOSEN,
    IID,
    WITHOUT_REPLACEMENT,
    DraftTree,
    IncompatibleVerifier,
    Sampling,
    Scores,
    State,
)
from specviz.verifiers import BlockVerification, TokenRejection, Traversal

from .enumeration import Script, distance, every
from .rounds import Stationary, World, grow, play_once, probs_of_round, score, target_probs
from .toys import later, methods, small_knobs, toy

I = IID
W = WITHOUT_REPLACEMENT
C = CHOSEN
PLAIN = (Traversal(), BlockVerification(), TokenRejection())
LONG = ("iid tree", "wide, then a chain")  # their many endings take most verifiers long
SHAPES = {  # name: (vocabulary, groups of siblings a depth)
    "chain of 1": (6, [((I, 1),)]),
    "chain of 2": (6, [((I, 1),)] * 2),
    "chain of 3": (4, [((I, 1),)] * 3),
    "chosen chain": (6, [((C, 1),)] * 3),
    "iid siblings": (6, [((I, 3),)]),
    "iid tree": (3, [((I, 2),)] * 2),
    "siblings without replacement": (6, [((W, 3),)]),
    "tree without replacement": (3, [((W, 2),), ((W, 2),)]),
    "more siblings than tokens": (3, [((W, 4),)]),
    "chosen tree": (5, [((C, 3),), ((C, 2),)]),
    "two drafts": (6, [((I, 1), (I, 1))]),
    "drawn, then chosen": (5, [((W, 2), (C, 2))]),
    "drawn and chosen below drawn and chosen": (3, [((I, 1), (C, 1)), ((W, 1), (C, 1))]),
    "all kinds": (4, [((I, 1), (W, 2), (I, 1), (C, 2))]),
    "chosen before drawn": (4, [((C, 2), (I, 1))]),
    "wide, then a chain": (3, [((W, 2),), ((I, 1),), ((I, 1),)]),
}


@functools.cache
def used() -> list:
    """Every verifier that an exact method uses, and those of the package that none uses yet."""
    found, kit = {type(v): v for v in PLAIN}, toy(4)
    for method in methods("exact"):
        for knobs in small_knobs(method):
            verifier = method.build(kit, **knobs).verifier
            found.setdefault(type(verifier), verifier)
    return list(found.values())


CASES = [
    later(
        pytest.param(verifier, *SHAPES[name], id=f"{type(verifier).__name__}: {name}"),
        name not in LONG or verifier in PLAIN,
    )
    for verifier in used()
    for name in SHAPES
]


@pytest.mark.parametrize("zeros", [0, 1], ids=["", "impossible tokens"])
@pytest.mark.parametrize("verifier, vocab, shape", CASES)
def test_what_comes_out_follows_the_target(verifier, vocab, shape, zeros):
    for seed in range(3):
        world = World(vocab, seed, zeros)
        try:
            probs, _, endings = probs_of_round(world, shape, verifier)
        except IncompatibleVerifier as refusal:
            assert not verifier.labels >= {how for groups in shape for how, _ in groups} or "chains" in str(
                refusal
            )
            return
        assert sum(probs.values()) == pytest.approx(1, abs=1e-12) and endings > 1
        assert distance(probs, target_probs(world, len(shape) + 1)) < 1e-12
        if endings > 200:
            return


def test_every_verifier_judges_what_it_lists():
    for verifier in used():
        judged = 0
        for vocab, shape in SHAPES.values():
            try:
                play_once(World(vocab), shape, verifier, Script([]))
                judged += 1
            except IncompatibleVerifier:
                continue
        assert judged >= 4, type(verifier).__name__


P, Q = (0.5, 0.3, 0.2), (0.2, 0.3, 0.5)


@pytest.mark.parametrize(
    "verifier, shape, want",
    [
        (TokenRejection(), [((I, 1),)], 0.7),
        (TokenRejection(), [((I, 2),)], 0.76),
        (TokenRejection(), [((I, 3),)], 0.808),
        (TokenRejection(), [((W, 2),)], 0.82),
        (TokenRejection(), [((W, 3),)], 1.0),
        (TokenRejection(), [((C, 2),)], 0.5),  # p of the draft's two best, tokens 2 and 1
        (TokenRejection(), [((I, 1),)] * 2, 1.19),
        (BlockVerification(), [((I, 1),)] * 2, 1.25),
        (TokenRejection(), [((I, 1),)] * 3, 1.533),
        (BlockVerification(), [((I, 1),)] * 3, 1.695),
        (TokenRejection(), [((I, 1),)] * 5, 1.941170),
        (BlockVerification(), [((I, 1),)] * 5, 2.373050),
        (TokenRejection(), [((W, 2),)] * 2, 1.4924),
        (Traversal(), [((W, 2),)] * 2, 1.5284),
    ],
    ids=lambda x: str(x) if type(x) in (list, float) else type(x).__name__,
)
def test_accepted_tokens_are_the_golden_numbers(verifier, shape, want):
    assert probs_of_round(Stationary(P, Q), shape, verifier)[1] == pytest.approx(want, abs=1e-6)


def test_acceptance_is_the_overlap_of_the_two_distributions():
    for seed in range(10):
        world = World(6, seed)
        overlap = float(torch.minimum(world.target(()), world.draft(())).sum())
        for verifier in (TokenRejection(), BlockVerification(), Traversal()):
            assert probs_of_round(world, [((I, 1),)], verifier)[1] == pytest.approx(overlap, abs=1e-12)


def test_judging_together_never_accepts_less():
    for seed in range(4):
        world = World(3, seed)
        for shape in ([((I, 1),)] * 3, [((I, 1), (C, 1)), ((W, 1), (C, 1))]):
            token, together = (probs_of_round(world, shape, v)[1] for v in (TokenRejection(), Traversal()))
            assert together >= token - 1e-12


def test_a_block_is_kept_over_a_token_that_fails_alone():
    """p/q of the path (2, 0, 0) is 0.4, 2.5, 2.5: the first token fails alone more often than not, the
    block never does."""
    world, tree = Stationary(P, Q), DraftTree.chain([2, 0, 0], torch.tensor([Q] * 3, dtype=torch.float64))

    def judged(verifier):
        return list(
            every(lambda rng: verifier.verify(tree, score(world, tree), State([0], Sampling(1.0), rng)))
        )

    assert {verdict.path for verdict, _ in judged(BlockVerification())} == {(0, 1, 2)}
    assert sum(prob for verdict, prob in judged(TokenRejection()) if verdict.path) == pytest.approx(0.4)


@pytest.mark.parametrize("verifier", used(), ids=lambda v: type(v).__name__)
def test_equal_distributions_are_never_refused_and_never_give_nothing(verifier):
    """In single precision too: where p = q the residual is empty, and rounding must not make a distribution
    of it."""
    probs = torch.softmax(torch.randn(50, generator=torch.Generator().manual_seed(0)), -1)
    for token in range(50):
        tree, scores = (
            DraftTree.chain([token] * 2, torch.stack([probs, probs])),
            Scores(torch.stack([probs.log()] * 3)),
        )
        for seed in range(5):
            verdict = verifier.verify(tree, scores, State([0], Sampling(1.0, seed=seed)))
            assert verdict.path == (0, 1) and float(verdict.probs.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("verifier", used(), ids=lambda v: type(v).__name__)
def test_at_temperature_zero_the_path_is_the_targets_own(verifier):
    for seed in range(20):
        for name, (vocab, shape) in SHAPES.items():
            world = World(vocab, seed)
            tree = grow(world, shape, State([0], Sampling(1.0, seed=seed)))
            try:
                verifier.check(tree)
            except IncompatibleVerifier:
                continue
            verdict = verifier.verify(tree, score(world, tree), State([0], Sampling(0.0)))
            written, node = [], -1
            while True:
                best = int(world.target(written).argmax())
                written.append(best)
                node = next((c for c in tree.children(node) if tree.tokens[c] == best), None)
                if node is None:
                    break
            assert [tree.tokens[i] for i in verdict.path] + [verdict.token] == written, name
