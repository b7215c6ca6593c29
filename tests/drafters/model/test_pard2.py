"""PARD-2: each token's input is its embedding and the target's states one position before it; the recorded
distribution is the one that tokens are drawn from."""

from __future__ import annotations

import pytest
import torch

from specviz.core import IID, Budget, Parts, Sampling, State, TreeBuilder, open_run, play
from specviz.drafters.model.masked import MaskedDraft
from specviz.methods.draft_model.pard2.pard2_drafter import InformedMaskedDraft
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection

from ...exactness.enumeration import distance, joint, probs_of_engine
from ...exactness.toys import PROMPT, begin, toy

GAMMA = 3


@pytest.mark.parametrize("rounds", [0, 3])
def test_a_draft_is_one_pass_over_embeddings_and_the_states_before(rounds):
    """At the beginning of a run and after some rounds: against the network's training forward."""
    kit = toy(12)
    pard, projection = kit.head("pard"), kit.head("pard2")
    drafter = InformedMaskedDraft(pard, projection)
    parts = Parts(drafter, Fixed(GAMMA), TokenRejection())
    state = State(list(PROMPT), Sampling(1.0, seed=3), limit=60)
    kit.target.capture(drafter.hidden_states)
    open_run(parts, kit.target, state)
    for _ in range(rounds):
        play(parts, kit.target, state)
    found = drafter.propose(state, Budget(GAMMA)).probs
    fresh = kit.open_net(kit.net)
    fresh.capture(drafter.hidden_states)
    scores = fresh.sync(state.tokens)
    states = torch.cat([scores.hidden_states[name] for name in projection.hidden_states], -1)
    with torch.inference_mode():
        added = torch.zeros(1, len(state.tokens) + GAMMA - 1, pard.sizes.hidden, dtype=torch.float64)
        added[0, 1 : len(state.tokens)] = projection(states)
        ids = torch.tensor([[*state.tokens, *[pard.mask_token] * (GAMMA - 1)]])
        rows = pard.rows(ids, added=added)[0][0, -GAMMA:]
        want = pard.expand(rows @ pard.output.T).softmax(-1)
        without = pard.expand(pard.rows(ids)[0][0, -GAMMA:] @ pard.output.T).softmax(-1)
    assert float((found - want).abs().max()) < 1e-9 and float((found - without).abs().max()) > 1e-3


class RecordsPard(InformedMaskedDraft):
    """Wrong: tokens are drawn with the target's states, PARD's own distribution is recorded."""

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        plain = MaskedDraft(self.model).propose(state, Budget(len(tree)))
        build = TreeBuilder()
        for token, probs in zip(tree.tokens, plain.probs if len(tree) else ()):
            build.add(token, len(build) - 1, build.begin(probs, IID))
        return build.tree()

    def __init__(self, model, projection):
        super().__init__(model, projection)
        self.model = model


@pytest.mark.parametrize(
    "kind, right", [(InformedMaskedDraft, True), pytest.param(RecordsPard, False, marks=pytest.mark.thorough)]
)
def test_the_recorded_distribution_must_be_the_one_with_states(kind, right):
    kit = toy(3, share=0.5, sharp=0.8)
    parts = Parts(kind(kit.head("pard"), kit.head("pard2")), Fixed(2), TokenRejection())
    state = begin(parts, kit, Sampling(1.0), 3, prompt=[token % 3 for token in PROMPT])
    probs, _ = probs_of_engine(parts, kit.target, state, 3, shared=(kit.net, kit.small))
    off = distance(probs, joint(kit.net.logits, state.tokens, 3, Sampling(1.0), 3))
    assert (off > 1e-3) != right and (not right or off < 1e-12)
