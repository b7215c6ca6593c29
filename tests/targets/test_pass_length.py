"""Networks whose rows depend on the length of a pass or on slots: rotary embeddings chosen by length, and
attention that changes beyond a width of the config."""

from __future__ import annotations

import pytest
import torch
import transformers as tf

from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree
from specviz.models.attention_borders import LONGEST, borders
from specviz.models.rotary_limits import fixed_rotary_length
from specviz.targets import hf
from specviz.targets.hf import HFModel

from ..message_codes import refuses
from .tiny import CONFIGS as FAMILIES
from .tiny import CONTEXT, GROUPED, SMALL, VOCAB, WINDOW, network

ORIGINAL = 64
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": ORIGINAL,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
CONFIGS = {
    "phi3 longrope": lambda: tf.Phi3Config(
        **GROUPED | {"max_position_embeddings": 4 * ORIGINAL},
        rope_parameters=LONGROPE,
        original_max_position_embeddings=ORIGINAL,
    ),
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
    assert (
        fixed_rotary_length({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096})
        == 4096
    )
    assert (
        fixed_rotary_length(
            {
                "rope_parameters": {
                    "full_attention": dict(LONGROPE),
                    "sliding_attention": {"rope_type": "default"},
                }
            }
        )
        == ORIGINAL
    )
    assert fixed_rotary_length({"rope_parameters": DYNAMIC, "max_position_embeddings": 2048}) == 2048
    assert (
        fixed_rotary_length({"rope_parameters": {"rope_type": "llama3"}}) is None
        and fixed_rotary_length({}) is None
    )


BORDER = 16
LATENT = dict(
    SMALL,
    num_key_value_heads=4,
    kv_lora_rank=8,
    q_lora_rank=8,
    qk_rope_head_dim=8,
    qk_nope_head_dim=8,
    v_head_dim=8,
    n_routed_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    n_shared_experts=1,
    n_group=1,
    topk_group=1,
    index_topk=BORDER,
    index_n_heads=2,
    index_head_dim=16,
)
DEPENDS_ON_LENGTH = {  # in transformers itself
    "doge": lambda **changed: tf.DogeConfig(**SMALL | {"keep_window_size": BORDER} | changed),
    "deepseek_v32": lambda **changed: tf.DeepseekV32Config(**LATENT | {"first_k_dense_replace": 1} | changed),
    "glm_moe_dsa": lambda **changed: tf.GlmMoeDsaConfig(**LATENT | changed),
}


def gpt_neo(window: int):
    return tf.GPTNeoConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        window_size=window,
        max_position_embeddings=CONTEXT,
        attention_types=[[["global", "local"], 1]],
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", DEPENDS_ON_LENGTH)
def test_a_selection_of_keys_that_depends_on_the_length_is_refused(tmp_path, kind, seed):
    network(DEPENDS_ON_LENGTH[kind](), seed).save_pretrained(tmp_path)
    with refuses(ModelError, "forward.pass_length"):
        HFModel(str(tmp_path), device="cpu")


@pytest.mark.parametrize("kind", DEPENDS_ON_LENGTH)
def test_a_selection_that_takes_every_key_of_the_context_is_not_refused(tmp_path, kind):
    key = "keep_window_size" if kind == "doge" else "index_topk"
    network(DEPENDS_ON_LENGTH[kind](**{key: CONTEXT})).save_pretrained(tmp_path)
    model = HFModel(str(tmp_path), device="cpu")
    assert model.borders == []
    target, tokens = model.open(), torch.arange(40).mul(7).remainder(VOCAB).tolist()
    target.sync(tokens[:36])
    with torch.inference_mode():
        want = model.run(tokens, use_cache=False)[-5:]
    assert (target.score(DraftTree.chain(tokens[36:])).logits - want).abs().max() < 1e-3 * want.std()


@pytest.mark.parametrize("seed", range(3))
def test_a_window_over_slots_scores_chains_only(tmp_path, seed):
    network(gpt_neo(BORDER), seed).save_pretrained(tmp_path)
    model = HFModel(str(tmp_path), device="cpu")
    assert (
        model.borders == [BORDER]
        and "masks or positions" in model.note
        and "tree" not in model.open().capabilities
    )
    target, tokens = model.open(), torch.arange(40).mul(7).remainder(VOCAB).tolist()
    for known in (BORDER - 2, BORDER + 4, 2 * BORDER):
        target.sync(tokens[:known])
        with torch.inference_mode():
            want = model.run(tokens[: known + 4], use_cache=False)[-5:]
        assert (
            target.score(DraftTree.chain(tokens[known : known + 4])).logits - want
        ).abs().max() < 1e-3 * want.std()


def test_a_window_as_long_as_the_context_leaves_trees(tmp_path):
    network(gpt_neo(CONTEXT)).save_pretrained(tmp_path)
    model = HFModel(str(tmp_path), device="cpu")
    assert model.borders == [] and model.note is None and "tree" in model.open().capabilities


@pytest.mark.parametrize("kind", FAMILIES)
def test_families_that_were_right_beyond_their_borders_keep_trees(tmp_path, kind):
    network(FAMILIES[kind]()).save_pretrained(tmp_path)
    model = HFModel(str(tmp_path), device="cpu")
    assert model.borders == {"llama3": [32], "mistral": [WINDOW], "gemma3": [WINDOW]}.get(kind, [])
    assert model.note is None and "tree" in model.open().capabilities


def test_borders_are_the_smallest_widths_that_fit():
    assert borders(
        {"window_size": 256, "keep_window_size": 100, "index_topk": 50, "attention_chunk_size": 20}, 4096
    ) == [20, 50, 100]
    assert borders(
        {"sliding_window": LONGEST, "index_topk": LONGEST + 1, "attention_window": [64, 32]}, 4096
    ) == [32, 64, LONGEST]
    assert borders({"sliding_window": 90, "index_block_size": 80, "window_size": 1}, CONTEXT) == [80]
    assert borders(
        {
            "text_config": {"index_topk": 48},
            "rope_parameters": {"full_attention": {"original_max_position_embeddings": 40}},
            "vision_config": {"window_size": 24},
        },
        4096,
    ) == [40, 48]
    counts = {
        "max_window_layers": 28,
        "num_logits_to_keep": 20,
        "topk_group": 4,
        "top_k": 50,
        "sliding_window_pattern": 6,
        "use_sliding_window": True,
        "sliding_window": None,
        "n_window": 50,
    }
    assert borders(counts, 4096) == []
