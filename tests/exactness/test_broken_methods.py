"""The checks catch what is wrong: each wrong variant on a toy where it is wrong, beside the right one on
the same toy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from specviz.core import CHOSEN, IID, WITHOUT_REPLACEMENT, Parts, Sampling, State, open_run, play
from specviz.drafters.heads.online import LearningBlock
from specviz.drafters.model.chain import DraftChain, DraftShape
from specviz.drafters.parallel.blocks import SampledJacobi
from specviz.loops.batched import batch_of_one
from specviz.policies import Fixed
from specviz.trees import full_tree
from specviz.verifiers import BlockVerification, TokenRejection

from . import broken_methods as w
from .enumeration import distance, joint, probs_of_engine
from .toys import PROMPT, Kit, TinyNet, TinyTarget, begin, cache_error, greedy, kv_error, player, toy

HALF = Sampling(0.5)


@dataclass
class Case:
    """What is wrong and what is right, as parts on a toy. sampling: where it shows; blind: greedy equality
    does not see it."""

    wrong: Callable
    right: Callable
    sampling: Sampling = Sampling(1.0)
    blind: bool = True


def parts(drafter, verifier=TokenRejection, gamma=2):
    return lambda kit: Parts(drafter(kit), Fixed(gamma, 2, 8), verifier())


def chain(kit):
    return DraftChain(kit.open("draft"))


def children(cls, how, count):
    return lambda kit: cls(kit.open("draft"), how, count)


def two(cls, *makers):
    return lambda kit: cls(*(make(kit) for make in makers))


def other(kit):
    return w.Children(kit.open_net(TinyNet(kit.vocab, 23, sharp=0.8)), IID, 1)


def learning(cls):
    return lambda kit: cls(kit.head("dflash"), 1, 0.05)


def batched(policy):
    return lambda kit: Parts(chain(kit), policy(), TokenRejection(), batch_of_one)


one, reported = children(w.Children, IID, 1), lambda kit: w.Told(2)
CASES = {
    "softmax-q test on top-k children": Case(
        parts(children(w.TopkAsDrawn, IID, 2)), parts(children(w.Children, CHOSEN, 2))
    ),
    "no residual after a refusal": Case(parts(chain, w.NoResidual), parts(chain)),
    "bonus drawn from the draft": Case(parts(chain, w.BonusFromDraft), parts(chain), blind=False),
    "sibling distribution not updated": Case(
        parts(children(w.Children, WITHOUT_REPLACEMENT, 2), w.BaseRow),
        parts(children(w.Children, WITHOUT_REPLACEMENT, 2)),
    ),
    "fused tree with the chosen child first": Case(
        parts(two(w.ChosenFirst, one, reported)), parts(two(w.Union, one, reported))
    ),
    "drawn twins merged": Case(parts(two(w.TwinsMerged, one, other)), parts(two(w.Union, one, other))),
    "temperature on the draft's side only": Case(parts(chain, w.NoTemperature), parts(chain), HALF),
    "draft distribution recorded without temperature": Case(
        parts(children(w.WarmDistribution, IID, 1)), parts(one), HALF
    ),
    "top-p on the draft's side only": Case(
        parts(chain, w.NoTemperature), parts(chain), Sampling(1.0, top_p=0.7)
    ),
    "stop rule that drops the token it looked at": Case(
        parts(lambda kit: w.DropsTheTokenItLookedAt(kit.open("draft"))),
        parts(lambda kit: w.KeepsTheTokenItLookedAt(kit.open("draft"))),
    ),
    "cut by tokens that keeps its label": Case(
        parts(lambda kit: w.CutByTokens(kit.open("draft"))),
        parts(lambda kit: w.CutAndDemoted(kit.open("draft"))),
    ),
    "verification ranked by the drawn token": Case(batched(w.RankByDrawnToken), batched(w.FixedLimit)),
    "block verification stopped at the first failure": Case(
        parts(chain, w.FirstFailure), parts(chain, BlockVerification)
    ),
    "drawn anew after a mismatch, as REST does": Case(parts(reported, w.DrawsAnew), parts(reported)),
    "Jacobi guesses held against the newest pass": Case(
        parts(lambda kit: w.StaleGuesses("left", 2)), parts(lambda kit: SampledJacobi("left", 2))
    ),
    "head that learns between drafting and verification": Case(
        parts(learning(w.LearnsBeforeVerification)), parts(learning(LearningBlock))
    ),
    "always accept": Case(parts(chain, w.AlwaysAccept), parts(chain), blind=False),
}


def off(make, sampling, vocab=3, count=3, seed=0) -> float:
    """How far the engine's distribution is from the target's, as test_distribution measures it."""
    kit = toy(vocab, seed, share=0.5, sharp=0.8)
    run = make(kit)
    state, fresh = begin(run, kit, sampling, count), TinyTarget(kit.net, kit.context)
    want = joint(kit.net.logits, state.tokens, count, sampling, vocab)

    def after_round(target, state, outcome, prob):
        assert cache_error(target, fresh, state.tokens) < 1e-12

    probs, _ = probs_of_engine(run, kit.target, state, count, after_round, shared=(kit.net, kit.small))
    return distance(probs, want)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_distribution_catches_it_and_passes_the_right_one(case):
    assert off(case.wrong, case.sampling) > 1e-3
    assert off(case.right, case.sampling) < 1e-12


def writes_the_greedy_tokens(make, kit: Kit, target=None) -> bool:
    target, run = target or kit.target, make(kit)
    state = State(list(PROMPT), Sampling(0.0), limit=40)
    open_run(run, target, state)
    while not state.done:
        player(run)(run, target, state)
    return state.tokens == greedy(kit.net.logits, PROMPT, 40)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_greedy_equality_sees_it_or_is_blind_to_it(case):
    assert writes_the_greedy_tokens(case.right, toy(12, share=0.8, sharp=3.0))
    assert writes_the_greedy_tokens(case.wrong, toy(12, share=0.8, sharp=3.0)) == case.blind


@pytest.mark.parametrize(
    "broken", [w.FirstRowsKept, w.PositionsByRow], ids=["first rows kept", "positions by row"]
)
def test_a_cache_that_is_wrong_is_caught(broken):
    def tree(kit):
        return Parts(
            DraftShape(kit.open("draft"), full_tree((2, 2)), False), Fixed(2, 2, 8), TokenRejection()
        )

    kit = toy(12, share=0.8, sharp=3.0)
    assert writes_the_greedy_tokens(tree, kit)
    assert not writes_the_greedy_tokens(tree, toy(12, share=0.8, sharp=3.0), broken(kit.net, kit.context))
    run = tree(kit)
    target = broken(kit.net, kit.context)
    fresh = TinyTarget(kit.net, kit.context)
    state, worst = State(list(PROMPT), Sampling(0.0), limit=40), 0.0
    open_run(run, target, state)
    while not state.done:
        play(run, target, state)
        worst = max(worst, cache_error(target, fresh, state.tokens))
    assert worst > 1e-3


def test_a_draft_cache_that_is_wrong_is_caught_though_the_text_is_right():
    """What a draft says is compatible whatever its cache holds, so only a look into the cache finds out."""
    kit = toy(12, share=0.8, sharp=3.0)
    draft = w.FirstRowsKept(kit.small, kit.context)
    run = Parts(DraftShape(draft, full_tree((2, 2)), False), Fixed(2, 2, 8), TokenRejection())
    state, worst = begin(run, kit, Sampling(0.0), 40), 0.0
    while not state.done:
        play(run, kit.target, state)
        worst = max(worst, kv_error(draft, TinyTarget(kit.small, kit.context), draft.cached_tokens + [0]))
    assert state.tokens == greedy(kit.net.logits, PROMPT, 40) and worst > 1e-3


def test_the_walk_that_the_wrong_ones_vary_is_right():
    assert off(parts(chain, w.Walk), Sampling(0.7, top_p=0.9)) < 1e-12
    assert writes_the_greedy_tokens(parts(chain, w.Walk), toy(12, share=0.8, sharp=3.0))
