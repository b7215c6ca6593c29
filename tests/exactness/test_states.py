"""The distribution of targets with states: methods of their own enumerated on their own forwards, states
included."""

from __future__ import annotations

import copy

import pytest
import torch

from specviz.core import DraftTree, Sampling
from specviz.methods import catalogue
from specviz.models.linear_attention import LinearAttentionMixer
from specviz.targets.recurrent import RecurrentModel, RecurrentTarget

from ..targets.test_recurrent import border_blind, nearest_rows
from ..targets.tiny import STATE_SPACE, network
from .enumeration import distance, joint, probs_of_engine
from .pair import Pair
from .toys import begin

VOCAB = 3
PROMPT = [1, 2, 0, 2, 1, 2, 0]
COUNT = 2
CASES = {"mamba2": "stree", "bamba": "stree", "falcon_h1": "stree", "linear_llama": "linearised"}


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    config, folder = STATE_SPACE[request.param](), tmp_path_factory.mktemp(request.param)
    config.vocab_size, config.tie_word_embeddings = VOCAB, False
    net = network(config, seed=3)
    noisy, source = copy.deepcopy(net), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in noisy.parameters():
            weight.add_(torch.randn(weight.shape, generator=source) * float(weight.std(correction=0)) * 0.3)
    for name, one in (("target", net), ("draft", noisy)):
        one.lm_head.weight.data.mul_(0.3)  # flat enough that everything can come up
        one.save_pretrained(folder / name)
    return catalogue()[CASES[request.param]], [
        RecurrentModel(folder / name, dtype=torch.float64) for name in ("target", "draft")
    ]


@torch.inference_mode()
def off(method, models):
    """Distance of the method's distribution from the sequential recurrence's, and the draft tokens expected
    to be accepted."""
    kit = Pair(*models, VOCAB, [PROMPT, [2, 0, 1, 1, 2, 0]])
    sampling = Sampling(1.0)
    accepted = [0.0]
    knobs = {"nodes": 4, "depth": 2} if method.key == "linearised" else {}
    parts = method.build(kit, **method.read_knobs(knobs))
    state = begin(parts, kit, sampling, COUNT, warm=1, prompt=PROMPT)
    fresh = models[0].open()

    def logits(tokens):
        fresh.close()
        rows = []
        for at in range(len(tokens)):  # one token after another, without a tree
            fresh.sync(tokens[: at + 1])
            rows.append(fresh.score(DraftTree()).logits[0])
        return torch.stack(rows)

    def after_round(target, state, outcome, prob):
        accepted[0] += prob * len(outcome.verdict.path)

    want = joint(logits, state.tokens, COUNT, sampling, VOCAB)
    probs, _ = probs_of_engine(parts, kit.target, state, COUNT, after_round, models)
    return distance(probs, want), accepted[0]


def test_the_joint_distribution_is_the_targets(pair):
    distant, accepted = off(*pair)
    assert distant < 1e-5 and accepted > 0.05


def test_spoiled_passes_are_caught(pair, monkeypatch):
    """A convolution that reads other branches; a tree that loses the group which it completes."""
    method, models = pair
    monkeypatch.setattr(RecurrentTarget, "_convolution_taps", nearest_rows)
    assert off(method, models)[0] > 1e-3
    if method.key == "linearised":
        monkeypatch.undo()
        monkeypatch.setattr(LinearAttentionMixer, "_sides", border_blind(LinearAttentionMixer._sides))
        assert off(method, models)[0] > 1e-3
