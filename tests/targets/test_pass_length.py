"""Rotary embeddings that transformers chooses by the length of a pass: a row's result must not depend on the rows after it."""
from __future__ import annotations

import pytest
import torch
import transformers as tf

from specviz.core import DraftTree
from specviz.models.rotary_limits import fixed_rotary_length
from specviz.models.weights import ModelError
from specviz.targets import hf
from specviz.targets.hf import HFModel

from ..message_codes import refuses
from .tiny import CONTEXT, GROUPED, VOCAB, network

ORIGINAL = 64
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0],
            "original_max_position_embeddings": ORIGINAL}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
CONFIGS = {
    "phi3 longrope": lambda: tf.Phi3Config(**GROUPED | {"max_position_embeddings": 4 * ORIGINAL}, rope_parameters=LONGROPE,
                                           original_max_position_embeddings=ORIGINAL),
    "llama dynamic": lambda: tf.LlamaConfig(**GROUPED, rope_parameters=DYNAMIC),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_row_is_the_same_alone_and_before_drafts_up_to_the_context(tmp_path, kind):
    network(CONFIGS[kind]()).save_pretrained(tmp_path)
    model = HFModel(str(tmp_path), device="cpu")
    assert model.context == (ORIGINAL if "longrope" in kind else CONTEXT)
    tokens = torch.arange(model.context - 1).mul(7).remainder(VOCAB).tolist()
    one, other = model.open(), model.open()
    one.sync(tokens)
    other.sync(tokens)
    alone = one.score(DraftTree()).logits
    before = other.score(DraftTree.chain((3, 4, 5, 6))).logits[:1]  # the last of them lie beyond the context
    assert (alone - before).abs().max() < 1e-4 * alone.std()
    with torch.inference_mode():
        want = model.run(tokens, use_cache=False)[-1:]
    assert (alone - want).abs().max() < 1e-3 * want.std()


def test_a_model_that_still_depends_on_the_length_is_refused(tmp_path, monkeypatch):
    network(CONFIGS["phi3 longrope"]()).save_pretrained(tmp_path)
    monkeypatch.setattr(hf, "fixed_rotary_length", lambda config: None)
    with refuses(ModelError, "forward.pass_length"):
        HFModel(str(tmp_path), device="cpu")


def test_the_length_is_read_from_every_spelling():
    assert fixed_rotary_length({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096}) == 4096
    assert fixed_rotary_length({"rope_parameters": {"full_attention": dict(LONGROPE), "sliding_attention": {"rope_type": "default"}}}) == ORIGINAL
    assert fixed_rotary_length({"rope_parameters": DYNAMIC, "max_position_embeddings": 2048}) == 2048
    assert fixed_rotary_length({"rope_parameters": {"rope_type": "llama3"}}) is None and fixed_rotary_length({}) is None
