"""Sizes inside one draft model: who speaks, under which distribution, and what a chain tells of its
agreement with the target."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Budget, Parts, Sampling, State, open_run, play
from specviz.core.state import Clock
from specviz.drafters.model.nested import NestedChain
from specviz.drafters.model.overlap import OverlapChain
from specviz.policies import Fixed
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.verifiers import TokenRejection

TEXT = [3, 1, 4, 1, 5]
LAYERS = (2, 3, 4)


def said_by(net, layers, tokens):
    """Logits after the tokens, of the first layers alone, without a cache."""
    short = net.interpolate(net, 0.0)
    short.layers = net.layers[:layers]
    return short.logits(tokens)[-1]


@pytest.fixture(scope="module")
def net():
    return TinyNet(12, 3, layers=4, sharp=1.2)


@pytest.mark.parametrize("size", [0, 1, -1, None])
def test_each_token_follows_the_distribution_of_the_smallest_size_that_is_sure(net, size):
    sure, met = 0.33, set()
    for seed in range(6):
        drafter, state = (
            NestedChain(TinyTarget(net), size, sure),
            State(TEXT[: 2 + seed % 4], Sampling(1.0, seed=seed)),
        )
        tree = drafter.propose(state, Budget(5))
        ((_, reported),) = state.notes
        for i, at in enumerate(reported["used"]):
            before = [*state.tokens, *tree.tokens[:i]]
            each = [said_by(net, layers, before).softmax(-1) for layers in LAYERS]
            wanted = (
                size
                if size is not None
                else next((k for k, probs in enumerate(each) if float(probs.max()) >= sure), 2)
            )
            assert at == wanted % 3 and torch.allclose(tree.draft_probs(i), each[at], atol=1e-9)
            assert reported["sure"][i] == pytest.approx(float(each[at].max()), abs=1e-4)
            met.add(at)
    assert (
        len(met) == (3 if size is None else 1)
        and reported["layers"] == list(LAYERS)
        and reported["least"] == (sure if size is None else 0.0)
    )


def test_a_larger_size_reads_what_it_missed_in_one_pass(net):
    drafter = NestedChain(TinyTarget(net), None, 0.0)
    tree = drafter.propose(State(TEXT, Sampling(1.0, seed=1)), Budget(4))
    small, middle, whole = drafter.views
    assert len(tree) == 4 and small.passes > 0 == middle.passes == whole.passes
    drafter.min_top1_prob = 1.1
    drafter.propose(State(TEXT, Sampling(1.0, seed=1)), Budget(1))
    assert middle.passes <= 2 and whole.passes <= 2  # the prompt, and the root


def test_a_model_that_leaves_nothing_out_has_one_size(net):
    class Whole(TinyTarget):
        capabilities = TinyTarget.capabilities - {"skip"}

    drafter = NestedChain(Whole(net))
    assert drafter.sizes == (4,) and len(drafter.propose(State(TEXT, Sampling(0.0)), Budget(3))) == 3


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_agreement_is_what_both_distributions_have_in_common_at_the_judged_places(net, temperature):
    """By hand, without caches; places behind a refusal are not told, and a token's chance to pass is what
    is told."""
    small = TinyNet(12, 5, layers=2, sharp=1.2)
    target, parts = TinyTarget(net), Parts(OverlapChain(TinyTarget(small)), Fixed(3), TokenRejection())
    state, lengths = State(list(TEXT), Sampling(temperature, seed=2), limit=24), set()
    open_run(parts, target, state)
    while not state.done:
        text, state.notes = list(state.tokens), []
        outcome = play(parts, target, state)
        ((kind, reported),) = state.notes or [("overlap", {"line": []})]
        count = min(len(outcome.verdict.path) + (outcome.verdict.kind == "correction"), len(outcome.tree))
        assert kind == "overlap" and count <= len(reported["line"]) <= count + 1
        for i, common in enumerate(reported["line"]):
            before = text + list(outcome.tree.tokens[:i])
            p, q = (one.logits(before)[-1].div(temperature or 1.0).softmax(-1) for one in (net, small))
            assert common == pytest.approx(float(p.minimum(q).sum()), abs=1e-4)
        lengths.add(len(reported["line"]))
    assert len(lengths) > 1


def test_what_is_only_shown_costs_no_time_of_the_engine(net, monkeypatch):
    now = [0.0]

    def dear(*given):
        now[0] += 100.0
        return plain(*given)

    plain = OverlapChain.compute_overlaps
    monkeypatch.setattr(OverlapChain, "compute_overlaps", lambda self, *given: dear(self, *given))
    small = TinyTarget(TinyNet(12, 5, layers=2, sharp=1.2))
    target, parts = TinyTarget(net), Parts(OverlapChain(small), Fixed(3), TokenRejection())
    state = State(list(TEXT), Sampling(0.0), limit=12, clock=Clock(lambda: now[0]))
    open_run(parts, target, state)
    while not state.done:
        play(parts, target, state)
    assert now[0] >= 200 and state.clock.now() == 0.0


def test_a_pause_within_a_pause_ends_with_the_outer_one():
    now = [0.0]
    clock = Clock(lambda: now[0])
    with clock.paused():
        now[0] = 1.0
        with clock.paused():
            now[0] = 2.0
        now[0] = 3.0
    now[0] = 3.5
    assert clock.now() == 0.5
