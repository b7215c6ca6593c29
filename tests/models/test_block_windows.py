"""Sliding windows of block drafters: which layers slide, by how much, and whether a block's rows see later
ones, as vLLM (036a00d, qwen3_dflash.py) and speculators (021e21b) read it; the layers compute that in
inference and in training."""

from __future__ import annotations

import json

import pytest
import torch

from specviz.checkpoints.head_keys import LayerAttention, block_attention
from specviz.checkpoints.weights import ModelError
from specviz.methods.trained_heads.dflash2_conv import dflash2_conv_network as convolutions
from specviz.models import masked_block as network

from ..message_codes import refuses
from .test_block import BODY, CONFIG, material, published, restated

FULL, SLIDING = "full_attention", "sliding_attention"
MIXED = [SLIDING, FULL]
BOTH, ALL = LayerAttention(None, False), LayerAttention(None, True)


@pytest.mark.parametrize(
    "config, expected",
    [
        ({}, [BOTH, BOTH]),
        ({"layer_types": [FULL, FULL], "sliding_window": 4}, [BOTH, BOTH]),
        (
            {"layer_types": MIXED, "sliding_window": 4},
            [LayerAttention(4, True), BOTH],
        ),  # z-lab/gemma-4-31B-it-DFlash
        (
            {"layer_types": MIXED, "sliding_window": 4, "use_sliding_window": True},
            [LayerAttention(4, True), BOTH],
        ),
        (
            {"layer_types": MIXED, "sliding_window": 4, "dflash_config": {"causal": False}},
            [LayerAttention(4, False), BOTH],
        ),
        (
            {"layer_types": MIXED, "sliding_window": 4, "dflash_config": {"causal": True}},
            [LayerAttention(4, True), ALL],
        ),
        (
            {
                "layer_types": MIXED,
                "sliding_window": 4,
                "is_causal": False,
                "dflash_config": {"causal": True},
            },
            [LayerAttention(4, False), BOTH],
        ),
        (
            {"layer_types": MIXED, "sliding_window": 9, "dflash_config": {"swa_window_size": 4}},
            [LayerAttention(4, True), BOTH],
        ),
        (
            {"dflash_config": {"use_swa": True, "swa_window_size": 4, "causal": False}},
            [LayerAttention(4, False)] * 2,
        ),  # MiMo-V2.5-Pro's
        (
            {
                "layer_types": [FULL, FULL],
                "sliding_window": 4,
                "dflash_config": {"use_swa": True, "causal": False},
            },
            [LayerAttention(4, False)] * 2,
        ),
        (
            {"layer_types": MIXED, "sliding_window": 4, "sliding_window_non_causal": True},
            [LayerAttention(4, False), BOTH],
        ),
        (
            {"layer_types": MIXED, "sliding_window": 4, "sliding_window_non_causal": False},
            [LayerAttention(4, True), BOTH],
        ),
        (
            {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
            [BOTH, LayerAttention(4, True)],
        ),
        ({"use_sliding_window": True, "sliding_window": 4}, [BOTH, BOTH]),
        ({"dflash_config": {"causal_head": True}}, [ALL, ALL]),
    ],
)
def test_each_layer_attends_as_the_newest_readers_say(config, expected):
    assert block_attention(config, "head", 2) == expected


@pytest.mark.parametrize(
    "config, key",
    [
        ({"layer_types": MIXED}, "sliding_window"),
        ({"layer_types": MIXED, "sliding_window": 0}, "sliding_window"),
        ({"layer_types": MIXED, "sliding_window": 4, "use_sliding_window": False}, "sliding_window"),
        ({"layer_types": [SLIDING, "linear_attention"], "sliding_window": 4}, "layer_types"),
        ({"layer_types": [SLIDING], "sliding_window": 4}, "layer_types"),
        ({"layer_types": "sliding_attention", "sliding_window": 4}, "layer_types"),
        ({"dflash_config": {"use_swa": True, "swa_window_size": "4"}}, "swa_window_size"),
    ],
)
def test_what_names_no_window_is_refused_by_the_key(config, key):
    with refuses(ModelError, "head.key", key):
        block_attention(config, "head", 2)


def load(folder, **more):
    weights = published(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG | more))
    return weights, network.load(folder, BODY)


@pytest.mark.parametrize("window", [1, 2, 3, 5, 9, 40])
@pytest.mark.parametrize("more", [{}, {"sliding_window_non_causal": True}])
def test_a_window_hides_what_is_farther_away(tmp_path, window, more):
    weights, head = load(tmp_path / "head", layer_types=MIXED, sliding_window=window, **more)
    states, embeds = material()
    causal = not more

    def sees(layer, row, key):
        return layer == 1 or abs(row - key) < window and (key <= row or not causal)

    want, rows = restated(weights, states, embeds, sees), head.open()
    with torch.inference_mode():
        rows.read(states[:4])
        rows.draft(embeds)
        rows.read(states[4:])
        assert float((rows.draft(embeds) - want).abs().max()) < 1e-6
        assert (
            float((head(states[None], embeds[None, None], torch.tensor([[7]]))[0, 0] - want).abs().max())
            < 1e-6
        )


def test_several_blocks_of_one_text_have_windows_of_their_own(tmp_path):
    weights, head = load(tmp_path / "head", layer_types=[SLIDING, SLIDING], sliding_window=3)
    states, embeds = material()
    with torch.inference_mode():
        both = head(states[None], torch.stack([embeds, embeds.flip(0)])[None], torch.tensor([[4, 7]]))[0]
        for block, anchor, at in ((embeds, 4, 0), (embeds.flip(0), 7, 1)):
            want = restated(weights, states[:anchor], block, lambda layer, row, key: 0 <= row - key < 3)
            assert float((both[at] - want).abs().max()) < 1e-6


def test_a_drafter_with_convolutions_has_windows_too():
    config = {
        **CONFIG,
        **CONFIG.get("dflash_config", {}),
        "vocab_size": BODY.vocab,
        "conv_kernel_size": 2,
        "conv_group_size": 2,
        "layer_types": MIXED,
        "sliding_window": 3,
    }
    head = convolutions.DFlash2(config).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(
                torch.randn(
                    parameter.shape,
                    generator=torch.Generator().manual_seed(parameter.numel()),
                    dtype=torch.float64,
                )
                / 3
            )
    states, embeds = material()
    rows = head.open()
    with torch.inference_mode():
        rows.read(states)
        whole = head(states[None], embeds[None, None], torch.tensor([[7]]))[0, 0]
        assert float((rows.draft(embeds) - whole).abs().max()) < 1e-6
