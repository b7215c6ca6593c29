"""Heads that learn while they draft: what a step reads, that agreement rises, that the shared head stays as it
came, and that the text is the target's."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.drafters.heads.online import LearningBlock, LearningFeatures, trainable_copy
from specviz.drafters.model.confidence_trees import ConfidentTree
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection

from ...exactness.toys import PROMPT, toy

KINDS = ("eagle", "eagle3", "dflash")


def drafter_of(kit, kind, every=2, rate=2e-2):
    if kind == "dflash":
        return LearningBlock(kit.head(kind), every, rate)
    return LearningFeatures(kit.head(kind), lambda model: ConfidentTree(model, 2, 0.0), every, rate)


def served(kind, length=120, temperature=1.0, make=drafter_of, **how):
    kit = toy(12, context=300)
    drafter = make(kit, kind, **how)
    parts = Parts(drafter, Fixed(3, 2, 4), TokenRejection())
    state = State(list(PROMPT), Sampling(temperature, seed=5), limit=length)
    kit.target.capture(drafter.hidden_states)
    reported = []
    open_run(parts, kit.target, state)
    while not state.done:
        state.notes = []
        play(parts, kit.target, state)
        reported += [data for kind, data in state.notes if kind == "distilled"]
    return kit, drafter, state, reported


@pytest.mark.parametrize("kind", KINDS)
def test_agreement_rises_and_the_shared_head_stays_as_it_came(kind):
    kit, drafter, _, reported = served(kind)
    steps = [note for note in reported if "now" in note]
    assert len(steps) == drafter.learner.updates >= 12
    assert steps[0]["now"] == pytest.approx(steps[0]["before"], abs=1e-4), (
        "before the first step both are one"
    )
    late = steps[len(steps) // 2 :]
    gained = sum(note["now"] - note["before"] for note in late) / len(late)
    assert gained > 0.05
    fresh = toy(12, context=300).head(kind)
    for name, weight in kit.head(kind).named_parameters():
        assert torch.equal(weight, fresh.get_parameter(name)) and not weight.requires_grad


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_learned_drafts(kind):
    """After a step the drafts are those of a fresh drafter over the trained weights, which reads the text anew."""
    kit, drafter, state, _ = served(kind, length=31, temperature=0.0, every=3)
    fresh = drafter_of(kit, kind)
    trained = drafter.learner.net
    (fresh if kind == "dflash" else fresh.model).net = trained
    (fresh if kind == "dflash" else fresh.model).rows = trained.open()
    ahead = State(list(state.tokens), Sampling(0.0), limit=40)
    other = kit.open_net(kit.net)
    other.capture(drafter.hidden_states)
    fresh.start(ahead, other, other.sync(ahead.tokens))
    budget = Fixed(3, 2, 4).plan(ahead)
    mine = State(list(state.tokens), Sampling(0.0), limit=40)
    assert drafter.learner.updates > 2
    found, want = drafter.propose(mine, budget), fresh.propose(ahead, budget)
    assert (found.tokens, found.parents) == (want.tokens, want.parents) and len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_run_again_and_the_text_is_the_targets(kind):
    _, _, state, reported = served(kind, length=60)
    _, _, again, same = served(kind, length=60)
    assert state.tokens == again.tokens and reported == same
    _, _, greedy, _ = served(kind, length=60, temperature=0.0)
    kit = toy(12, context=300)
    plain = list(PROMPT)
    kit.target.sync(plain)
    for _ in range(60):
        plain.append(int(kit.net.logits(plain)[-1].argmax()))
    assert greedy.tokens == plain


def test_a_copy_shares_no_weight_and_nothing_computed_from_weights():
    kit = toy(12)
    head = kit.head("eagle")
    head.open()
    copied = trainable_copy(head)
    assert "fused" in head.__dict__ and "fused" not in copied.__dict__
    places = {weight.data_ptr() for weight in head.parameters()}
    assert all(weight.data_ptr() not in places and weight.requires_grad for weight in copied.parameters())
