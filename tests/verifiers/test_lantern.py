"""LANTERN: delta 0 is exact, the authors' residual is not; the total variation it reports is the one that
enumeration finds."""

from __future__ import annotations

import itertools

import pytest
import torch

from specviz.core import IID, Sampling, State, TreeBuilder
from specviz.core.sampling import RandomStreams
from specviz.verifiers import Lantern

from ..exactness.enumeration import distance
from ..exactness.rounds import FREE, World, grow, probs_of_round, score, target_probs

VOCAB = 4
NEAR = torch.tensor([[(i + k) % VOCAB for k in range(1, VOCAB)] for i in range(VOCAB)])
CHAIN = ((("iid", 1),), (("iid", 1),))
CHOSEN = ((("chosen", 1),), (("chosen", 2),))


class AllNeighbours(Lantern):
    """The authors' residual: all k neighbours lose their probability as soon as one of them was within the
    bound, even if its own probability is zero."""

    def added_neighbours(self, x, p):
        near = self.neighbours[x]
        return (
            super().added_neighbours(x, p)
            if float(p[near[0]]) > self.bound(p[x])
            else type(super().added_neighbours(x, p))(near, 0.0)
        )


def off(verifier, shape, seed, zeros=2) -> float:
    world = World(VOCAB, seed, zeros)
    return distance(probs_of_round(world, shape, verifier)[0], target_probs(world, len(shape) + 1))


@pytest.mark.parametrize("shape", [CHAIN, CHOSEN], ids=["drawn", "chosen"])
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_delta_0_is_exact(shape, relative):
    for seed in range(4):
        assert off(Lantern(NEAR, 0, 0.0, relative), shape, seed) < 1e-12


def test_the_authors_residual_is_caught_at_delta_0():
    assert max(off(AllNeighbours(NEAR, 0, 0.0), CHAIN, seed) for seed in range(4)) > 1e-3


def test_relaxing_accepts_more_and_is_no_longer_exact():
    world = World(VOCAB, 1)
    expected = [probs_of_round(world, CHAIN, Lantern(NEAR, 0, delta))[1] for delta in (0.0, 0.2, 0.4)]
    assert expected == sorted(expected) and expected[2] > expected[0] + 0.05
    assert off(Lantern(NEAR, 0, 0.4), CHAIN, 1, zeros=0) > 1e-3


@pytest.mark.parametrize("delta, relative", [(0.0, False), (0.1, False), (0.3, False), (0.3, True)])
def test_the_reported_total_variation_is_the_enumerated_one(delta, relative):
    """One place, one drawn token: the distribution followed, over every draw and every decision."""
    for seed in range(6):
        world, verifier = World(VOCAB, seed), Lantern(NEAR, 0, delta, relative)
        p, q = world.target(()), world.draft(())
        want = torch.zeros(VOCAB, dtype=torch.float64)
        for x in range(VOCAB):
            near = verifier.added_neighbours(x, p)
            accept = min(1.0, (float(p[x]) + near.mass) / float(q[x]))
            want[x] += q[x] * accept
            if accept < 1:
                want += q[x] * (1 - accept) * verifier.left(p, q, x, near)
        assert torch.allclose(verifier.output_distribution(p, q, 0), want, atol=1e-12)
        assert float(want.sum()) == pytest.approx(1, abs=1e-12)


def test_delta_bounds_what_one_draft_borrows_and_not_the_output():
    """Drafts of random distributions: the total variation of the output exceeds delta for some, and never
    that of the draft plus delta."""
    over, within = 0.0, -1.0
    for seed, delta in itertools.product(range(60), (0.05, 0.2, 0.4)):
        world, verifier = World(VOCAB, seed), Lantern(NEAR, 0, delta)
        p, q = world.target(()), world.draft(())
        assert all(verifier.added_neighbours(x, p).mass <= delta for x in range(VOCAB))
        off = float((verifier.output_distribution(p, q, 0) - p).abs().sum()) / 2
        over, within = max(over, off / delta), max(within, off - delta - float((q - p).abs().sum()) / 2)
    assert over > 1.2 and within < 0


def test_the_note_names_every_tested_node():
    world, verifier = World(VOCAB, 3), Lantern(NEAR, 0, 0.3)
    state = State([0], FREE, RandomStreams(1))
    verdict = verifier.verify(tree := grow(world, CHAIN, state), score(world, tree), state)
    [(kind, data)] = state.notes
    assert kind == "relaxed" and [t["node"] for t in data["tests"]] == [d.node for d in verdict.decisions]
    assert all(t["mass"] <= 0.3 + 1e-12 for t in data["tests"])


def test_greedy_accepts_a_look_alike_whose_neighbourhood_outweighs_the_best():
    build = TreeBuilder()
    build.add(0, -1, build.begin(torch.full((VOCAB,), 0.25), IID))
    logits = torch.tensor([[0.3, 0.35, 0.2, 0.15]] * 2).log()
    from specviz.core import Scores

    def kept(delta):
        return (
            Lantern(NEAR, 0, delta)
            .verify(build.tree(), Scores(logits), State([0], Sampling(0.0), RandomStreams(0)))
            .path
        )

    assert kept(0.0) == () and kept(0.4) == (0,)


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_what_a_request_forbids_is_not_accepted_for_its_neighbours(relative):
    """A token without probability of its own borrows none, so the outputs have the target's zeros."""
    verifier = Lantern(NEAR, 0, 1.0, relative)
    p = torch.tensor([0.0, 0.5, 0.3, 0.2], dtype=torch.float64)
    assert verifier.added_neighbours(0, p).mass == 0 and verifier.added_neighbours(1, p).mass > 0
    assert verifier.output_distribution(p, torch.full((VOCAB,), 0.25, dtype=torch.float64), 0)[0] == 0
    for seed in range(4):
        world = World(VOCAB, seed, 2)
        got, want = probs_of_round(world, CHAIN, verifier)[0], target_probs(world, len(CHAIN) + 1)
        assert all(want.get(text, 0) > 0 for text, prob in got.items() if prob > 1e-12)
