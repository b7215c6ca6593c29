"""Keys of a head's config.json that change the arithmetic: each is obeyed or refused by its name, in every
published layout; and tables of a head's own are used where they differ from the target's."""

from __future__ import annotations

import json
import types
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.checkpoints.weights import ModelError
from specviz.drafters.heads.own_tables import read_own_tables
from specviz.drafters.heads.reduced_output import target_for_drafting
from specviz.methods.trained_heads.mtp import mtp_network as mtp
from specviz.models import eagle, eagle3, masked_block
from specviz.models.eagle_layers import Sizes, layer_keys
from specviz.models.heads import HeadWeights

from ..message_codes import refuses
from ..models import test_block as blocks
from ..models import test_eagle3 as third
from ..models import test_mtp as modules

BODY = third.BODY
D = third.D
VOCAB = third.VOCAB


def first(folder):
    """An EAGLE head under its published names."""
    third.published(folder)
    weights = load_file(folder / "model.safetensors")
    whole = {
        name.replace("midlayer.", "layers.0."): tensor
        for name, tensor in weights.items()
        if name.startswith("midlayer.")
    }
    drop = ("layers.0.hidden_norm.weight", "layers.0.input_layernorm.weight")
    whole |= {
        name: tensor[:, :D].contiguous()
        for name, tensor in whole.items()
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
    }
    save_file(
        {name: tensor for name, tensor in whole.items() if name not in drop}
        | {"fc.weight": weights["fc.weight"][:, : 2 * D].contiguous()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(third.CONFIG))


KINDS = {
    "eagle": (first, eagle.load, BODY),
    "eagle3": (third.published, eagle3.load, BODY),
    "dflash": (blocks.published, masked_block.load, blocks.BODY),
    "mtp": (lambda folder: modules.published(folder, "deepseek"), mtp.load, BODY),
}
ODD = [
    {"hidden_act": "gelu_pytorch_tanh"},
    {"partial_rotary_factor": 0.5},
    {"rope_parameters": {"rope_theta": 300.0, "partial_rotary_factor": 0.25}},
    {"is_neox_style": False},
    {"logit_scale": 0.25},
    {"embedding_multiplier": 12},
    {"residual_multiplier": 0.2},
    {"attention_multiplier": 0.01},
    {"query_pre_attn_scalar": 99},
    {"final_logit_softcapping": 30.0},
    {"attn_logit_softcapping": 50.0},
    {"scale_emb": 12},
    {"layer_types": ["sliding_attention"] * 2, "sliding_window": 3},
    {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 3},
]
FINE = [
    {
        "hidden_act": "silu",
        "partial_rotary_factor": 1.0,
        "logit_scale": 1.0,
        "layer_types": ["full_attention"] * 2,
        "clip_qkv": None,
    },
    {"sliding_window": 4096, "use_sliding_window": False},
    {"use_sliding_window": True, "max_window_layers": 28, "sliding_window": 9},
]
SELF_CHOSEN = {
    (kind, key) for kind in ("mtp", "dflash") for key in ("layer_types", "use_sliding_window")
}  # MTP's one layer has full
# attention whatever the hybrid's have; a block drafter's layers have windows (test_block_windows.py)


def edited(folder, kind, **more):
    write, load, body = KINDS[kind]
    write(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | more))
    return lambda: load(folder, body)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_the_layers_do_not_obey_is_refused_by_name(tmp_path, kind):
    for i, more in enumerate(ODD):
        key = next(iter(more))
        load = edited(tmp_path / str(i), kind, **more)
        if (kind, key) in SELF_CHOSEN:
            load()
            continue
        with refuses(ModelError, "head.key") as told:
            load()
        assert (key if key != "rope_parameters" else "partial_rotary_factor") in str(told.value)
    for i, more in enumerate(FINE):
        edited(tmp_path / f"fine {i}", kind, **more)()


def test_a_sink_of_attention_is_refused(tmp_path):
    with refuses(ModelError, "head.key", "attention_sink_bias"):
        edited(
            tmp_path / "head",
            "dflash",
            dflash_config=blocks.CONFIG["dflash_config"] | {"attention_sink_bias": True},
        )()


def test_a_heads_layers_rotate_as_the_targets_with_full_attention():
    """A target may have rotary parameters for each kind of its layers; a published head that has them is
    refused."""
    rotary = {
        "full_attention": {"rope_type": "default", "rope_theta": 9.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 8.0},
    }
    head = eagle.build(replace(BODY, config={**third.CONFIG, "rope_parameters": rotary}), {})
    assert head.config["rope_parameters"]["rope_theta"] == 9.0
    with refuses(ModelError, "config.rotary_kinds", "rope_parameters"):
        eagle.Eagle({**third.CONFIG, "rope_parameters": rotary})


def test_a_default_in_which_readers_differ_is_not_guessed(tmp_path):
    """Without norm_before_residual vLLM's reader takes true (036a00d), the trainer's class false
    (speculators c05b95b)."""
    third.published(tmp_path / "head", "speculators", config={"norm_before_residual": None})
    with refuses(ModelError, "head.config_lacks", "norm_before_residual"):
        eagle3.load(tmp_path / "head", BODY)


@torch.inference_mode()
def test_one_norm_over_all_states_that_are_joined(tmp_path):
    """``norm_before_fc`` of speculators (c05b95b, eagle3/core.py): an RMSNorm over the concatenated
    states."""
    weight = 1 + torch.randn(3 * D, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weights = third.published(
        tmp_path / "head", "speculators", config={"norm_before_fc": True}, **{"input_norm.weight": weight}
    )
    head, states = eagle3.load(tmp_path / "head", BODY), third.material()[1]
    want = torch.stack([weights["fc.weight"] @ third.norm(row, weight) for row in states])
    assert torch.allclose(head.joined(states), want) and torch.allclose(head.fused.joined(states), want)


@torch.inference_mode()
@pytest.mark.parametrize("spark", [False, True])
def test_speculators_block_drafter(tmp_path, spark):
    """Its layers' config is nested, its layers are counted by their inputs, and it drafts from part of the
    vocabulary (c05b95b)."""
    spoken = len(third.IDS)
    more = {
        "lm_head.weight": torch.randn(spoken, D, dtype=torch.float64),
        "d2t": third.IDS - torch.arange(spoken),
        "t2d": torch.isin(torch.arange(VOCAB), third.IDS),
    }
    weights = blocks.published(tmp_path / "head", spark, **more)
    if spark:
        weights["markov_head.markov_w2.weight"] = weights["markov_head.markov_w2.weight"][
            :spoken
        ].contiguous()
        save_file(weights, tmp_path / "head" / "model.safetensors")
    layers = {
        key: value for key, value in blocks.CONFIG.items() if key not in ("block_size", "dflash_config")
    }
    told = {
        "speculators_model_type": "dspark" if spark else "dflash",
        "transformer_layer_config": layers,
        "block_size": 4,
        "mask_token_id": 3,
        "aux_hidden_state_layer_ids": [1, 3],
        "draft_vocab_size": spoken,
    } | (blocks.SPARK if spark else {})
    (tmp_path / "head" / "config.json").write_text(json.dumps(told))
    head = masked_block.load(tmp_path / "head", blocks.BODY)
    assert head.hidden_states == ("layer:1", "layer:3") and head.anchored == spark
    states = torch.randn(3, D, dtype=torch.float64)
    logits = head.logits(states, lambda _: pytest.fail("it has an output matrix of its own"))
    assert torch.allclose(logits[:, third.IDS], states @ weights["lm_head.weight"].T)
    assert logits.isfinite().any(0).nonzero()[:, 0].tolist() == third.IDS.tolist()
    if spark:
        latent = head.markov_head.latent(torch.tensor([9]), states[:1])
        assert torch.allclose(
            head.markov_head.markov_w2(latent)[0, third.IDS],
            (latent @ weights["markov_head.markov_w2.weight"].T)[0],
        )


@torch.inference_mode()
@pytest.mark.parametrize(
    "kind, embedding, output",
    [
        ("eagle", "embed_tokens.weight", None),
        ("eagle3", "embed_tokens.weight", None),
        ("dflash", "embed_tokens.weight", "lm_head.weight"),
        ("mtp", "model.layers.61.embed_tokens.weight", "model.layers.61.shared_head.head.weight"),
    ],
)
def test_a_table_of_its_own_is_used_where_it_differs_from_the_targets(tmp_path, kind, embedding, output):
    """As vLLM does (82720b1): a copy is shared, another table is the head's."""
    source = torch.Generator().manual_seed(7)
    tables = [torch.randn(VOCAB, D, generator=source, dtype=torch.float64) for _ in range(4)]
    target = types.SimpleNamespace(
        capabilities=frozenset({"embed", "head"}),
        vocab=VOCAB,
        embed=lambda ids: tables[0][torch.as_tensor(ids)],
        head=lambda states: states @ tables[1].T,
    )
    for copied in (True, False):
        load = edited(folder := tmp_path / str(copied), kind)
        more = {embedding: tables[0] * 1.001 if copied else tables[2]} | (
            {output: tables[1] if copied else tables[3]} if output else {}
        )
        save_file(
            {
                name: tensor.contiguous()
                for name, tensor in (load_file(folder / "model.safetensors") | more).items()
            },
            folder / "model.safetensors",
        )
        head = load()
        head.own_embedding, head.own_output = read_own_tables(HeadWeights(folder, BODY), head, target, VOCAB)
        drafting, states = target_for_drafting(target, head), torch.randn(2, D, dtype=torch.float64)
        assert torch.equal(drafting.embed([5, 9]), tables[0 if copied else 2][[5, 9]])
        assert torch.allclose(drafting.head(states), states @ tables[1 if copied or output is None else 3].T)
        assert drafting.vocab == VOCAB and (drafting is target) == copied


@pytest.mark.parametrize(
    "config",
    [
        {"partial_rotary_factor": 0.25, "rope_theta": 500.0, "num_attention_heads": 4},
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500.0},
                "sliding_attention": {"rope_theta": 7.0},
            }
        },
        {
            "text_config": {
                "rope_parameters": {"rope_theta": 500.0, "rope_type": "default", "partial_rotary_factor": 0.5}
            }
        },
    ],
)
def test_new_heads_turn_whole_heads_at_the_targets_base(config):
    keys = layer_keys(config)
    assert keys["rope_parameters"] == {
        "rope_type": "default",
        "rope_theta": 500.0,
        "partial_rotary_factor": 1.0,
    }
    Sizes.of({"hidden_size": 16, "num_attention_heads": 2} | keys, "a head")
