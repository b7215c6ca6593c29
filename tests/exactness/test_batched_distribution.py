"""The distribution of one request in a batch, whatever its neighbour draws: enumerated on the shipped
forward, in double precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specviz.core import RandomStreams, Sampling, State
from specviz.loops.batched import Batch
from specviz.policies import AdaptiveVerification, BatchTokenBudget
from specviz.policies.goodput import OPENING

from .enumeration import distance, every, joint
from .pair import Pair
from .test_fast_distribution import PROMPT, VOCAB, logits, models  # noqa: F401
from .toys import later, methods

KEYS = ("adaptive_verification", "tetris", "smartspec", "bass", "ems_sd", "speculative")
METHODS = [
    later(pytest.param(m, id=m.key), m.key in ("adaptive_verification", "tetris", "ems_sd"))
    for m in methods("exact")
    if m.key in KEYS
]
KNOBS = {
    "adaptive_verification": {"most": 2, "cut": "budget"},
    "tetris": {"gamma": 1, "extra": 1},
    "bass": {"first": 2},
    "ems_sd": {"most": 2, "least": 0.45},
    "speculative": {"gamma": 2},
}
COUNT = 2


class Scarce(BatchTokenBudget):
    """One draft row for all, so that what it is given to is decided anew each round."""

    def budget(self, states):
        return 1


class ScarceAdaptive(AdaptiveVerification):
    """One draft row for the most confident request, without the opening rounds, in which all is
    verified."""

    def __init__(self):
        super().__init__(2, uncut=0, threshold=False)
        self.rounds = len(OPENING)

    def _choose(self, states):
        self.budget = 1


POLICIES = {"tetris": lambda: Scarce(1, 1), "adaptive_verification": ScarceAdaptive}


@torch.inference_mode()
def written(method, models, rng, company: int):  # noqa: F811
    """What the enumerated request writes beside others, whose random numbers are of a seed: they change
    what it is given. Their texts are longer, so that where few may draft it is this one."""
    batch, mine = Batch(), None
    for i in range(1 + company):
        kit = Pair(*models, VOCAB, [PROMPT])
        parts = method.build(kit, **method.read_knobs(KNOBS.get(method.key, {})))
        parts = replace(parts, policy=POLICIES[method.key]()) if method.key in POLICIES else parts
        state = State(
            PROMPT + PROMPT[:i], Sampling(1.0), RandomStreams(i) if i else rng, limit=9 if i else COUNT + 1
        )
        request = batch.join(parts, kit.target, state)[0]
        mine = mine or request
    while len(mine.state.tokens) - mine.state.start < COUNT:
        batch.round()
    return tuple(mine.state.tokens[mine.state.start :][:COUNT])


@pytest.mark.parametrize("method", METHODS)
def test_the_distribution_of_a_request_is_the_targets_in_any_batch(method, models):  # noqa: F811
    fresh = models[0].open()
    probs = {}
    endings = 0
    for tokens, prob in every(lambda rng: written(method, models, rng, 1)):
        probs[tokens], endings = probs.get(tokens, 0.0) + prob, endings + 1
    want = joint(lambda tokens: logits(fresh, tokens), PROMPT, COUNT, Sampling(1.0), VOCAB)
    assert distance(probs, want) < 1e-12 and endings > 20
