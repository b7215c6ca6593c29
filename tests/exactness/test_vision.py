"""Speculative decoding behind a picture: the joint distribution of three tokens, enumerated on a tiny
target that reads one, is the target's own; a target that forgets the picture is caught; greedy text equals
plain decoding's."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from specviz.core import DraftTree, Sampling
from specviz.methods import catalogue
from specviz.targets.fast import FastModel
from specviz.targets.llama import LlamaTarget
from specviz.targets.vision import VisionModel, VisionTarget

from ..targets.tiny import network as text_network
from ..targets.vision import PICTURES, network, save
from .enumeration import distance, joint, probs_of_engine
from .pair import Pair
from .toys import begin, cache_error

VOCAB = 3
PROMPT = [1, 2, 0, 2, 1, 2]
COUNT = 3
KNOBS = {
    "speculative": {"gamma": 2},
    "multimodal": {"gamma": 2},
    "specinfer": {"width": 2, "split": 1, "depth": 2},
    "jacobi": {},
    "lookahead": {},
    "prompt_lookup": {},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    from transformers import LlamaConfig

    folder = tmp_path_factory.mktemp("pair")
    net = network(VOCAB, 64)
    net.model.embed_tokens.weight.data.mul_(0.5)  # flat enough that everything can come up
    draft = text_network(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )
    draft.lm_head.weight.data.mul_(0.4)
    draft.save_pretrained(folder / "draft")
    return VisionModel(save(net, folder / "target"), dtype=torch.float64), FastModel(
        folder / "draft", dtype=torch.float64
    )


class Seeing:
    """A model whose targets read a picture. kind: class of the targets."""

    def __init__(self, model, kind=VisionTarget, picture=PICTURES[0]):
        self.model = model
        self.kind = kind
        self.picture = picture

    def open(self):
        target = self.kind(self.model)
        target.set_picture(self.picture)
        return target


@torch.inference_mode()
def logits(target, tokens):
    target.close()
    target.sync(tokens[:1])
    return target.score(DraftTree.chain(tokens[1:])).logits


@torch.inference_mode()
def enumerated(models, key, knobs, kind=VisionTarget):
    """Distance from the distribution of the target behind its picture, from that of the same target without
    one, number of endings."""
    kit, sampling = (
        Pair(Seeing(models[0], kind), models[1], VOCAB, [PROMPT, [2, 0, 1, 1, 2, 0]]),
        Sampling(1.0),
    )
    method = catalogue()[key]
    parts, fresh = method.build(kit, **method.read_knobs(knobs)), Seeing(models[0]).open()
    state = begin(parts, kit, sampling, COUNT, warm=1, prompt=PROMPT)
    worst = [0.0]

    def after_round(target, state, outcome, prob):
        worst[0] = max(worst[0], cache_error(target, fresh, state.tokens))

    want, blind = (
        joint(partial(logits, target), state.tokens, COUNT, sampling, VOCAB)
        for target in (fresh, VisionTarget(models[0]))
    )
    probs, endings = probs_of_engine(
        parts, kit.target, state, COUNT, after_round, [*models, models[0].vision]
    )
    return distance(probs, want), distance(probs, blind), endings, worst[0]


@pytest.mark.parametrize("reads", ["text", "text and caption"])
def test_the_joint_distribution_of_three_tokens_is_that_of_the_target_behind_its_picture(models, reads):
    off, blind, endings, cache = enumerated(models, "multimodal", {"gamma": 2, "draft_reads": reads})
    assert off < 1e-12 and cache < 1e-12 and endings >= 2 ** (COUNT - 1)
    assert blind > 0.01, "the picture decides something"


class ForgetsAfterRollback(VisionTarget):
    """Counts positions without the picture's rows once a draft was refused."""

    refused = False

    def commit(self, verdict):
        self.refused = self.refused or len(verdict.path) < len(self._tree)
        super().commit(verdict)

    def _forward(self, rows):
        return LlamaTarget._forward(self, rows) if self.refused else super()._forward(rows)


def test_a_target_that_forgets_the_picture_after_a_rollback_is_caught(models):
    assert enumerated(models, "multimodal", {"gamma": 2}, ForgetsAfterRollback)[0] > 1e-3


@torch.inference_mode()
def test_greedy_text_equals_plain_decoding_behind_the_picture(models):
    from specviz.evidence.certificate import plain_decoding

    for key, knobs in KNOBS.items():
        method = catalogue()[key]
        kit = Pair(Seeing(models[0]), models[1], VOCAB, [PROMPT, [2, 0, 1, 1, 2, 0]])
        parts = method.build(kit, **method.read_knobs(knobs))
        state = begin(parts, kit, Sampling(0.0), 12, warm=12, prompt=PROMPT)
        want, _ = plain_decoding(Seeing(models[0]).open(), PROMPT, 12)
        assert state.tokens[len(PROMPT) :][:12] == want[: len(state.tokens) - len(PROMPT)], key
