"""The distribution of the shipped forward: every exact method enumerated on our own Llama, in double
precision, cache included."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers as tf

from specviz.core import DraftTree, Sampling
from specviz.targets.fast import FastModel

from ..targets.tiny import network
from .enumeration import TooMany, distance, joint, probs_of_engine
from .pair import Pair
from .toys import CAPABILITIES, begin, cache_error, later, methods, needs_own_target, sample, small_knobs

VOCAB = 3
PROMPT = [1, 2, 0, 2, 1, 2]
COUNT = 3
EXACT = [method for method in methods("exact") if not needs_own_target(method)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    net = network(
        tf.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )
    noisy, source = copy.deepcopy(net), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in noisy.parameters():
            weight.add_(torch.randn(weight.shape, generator=source) * float(weight.std()) * 0.3)
    for name, one in (("target", net), ("draft", noisy)):
        one.lm_head.weight.data.mul_(0.4)  # flat enough that everything can come up
        one.save_pretrained(folder / name)
    return [FastModel(folder / name, dtype=torch.float64) for name in ("target", "draft")]


@torch.inference_mode()
def logits(target, tokens):
    """All rows from an empty cache."""
    target.close()
    target.sync(tokens[:1])
    return target.score(DraftTree.chain(tokens[1:])).logits


@pytest.mark.parametrize("method", [later(pytest.param(m, id=m.key), m.key in sample()) for m in EXACT])
def test_the_joint_distribution_of_three_tokens_is_the_targets(method, models):
    try:
        off, endings, accepted = enumerate_method(method, models, COUNT)
    except TooMany:  # wide trees: two tokens still take a round of the tree and one after it
        off, endings, accepted = enumerate_method(method, models, COUNT - 1)
    assert off < 1e-12 and endings >= 2 ** (COUNT - 1)
    assert accepted > 0.05 or method.key == "autoregressive"


@torch.inference_mode()
def enumerate_method(method, models, count):
    """Distance of the method's distribution from the target's, how many endings there are, draft tokens
    expected to be accepted."""
    kit = Pair(*models, VOCAB, [PROMPT, [2, 0, 1, 1, 2, 0]])
    sampling = Sampling(1.0)
    accepted = [0.0]
    assert method.needs <= kit.target.capabilities | CAPABILITIES
    knobs = small_knobs(method)[-1]
    knobs |= (
        {"caution": 0.0} if "caution" in knobs else {}
    )  # a gate lets nothing through so early; test_distribution has it
    knobs |= (
        {"sure": 0.0} if method.key == "dspark" else {}
    )  # nor does the confidence of a head that is not trained
    parts, fresh = method.build(kit, **knobs), kit.model.open()
    state = begin(parts, kit, sampling, count, warm=1, prompt=PROMPT)

    def after_round(target, state, outcome, prob):
        accepted[0] += prob * len(outcome.verdict.path)
        assert cache_error(target, fresh, state.tokens) < 1e-12

    want = joint(lambda tokens: logits(fresh, tokens), state.tokens, count, sampling, VOCAB)
    probs, endings = probs_of_engine(parts, kit.target, state, count, after_round, models, most=600)
    return distance(probs, want), endings, accepted[0]
