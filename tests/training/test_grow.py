"""A grown network computes what the small one computed, learns in its new parts, and is refused where it
could not."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.training.grow import grow_model
from specviz.training.optimise import BlockMuon, orthogonal_blocks
from specviz.training.runner import bfloat16_is_faster

SMALL = dict(hidden=24, layers=2, heads=2, kv_heads=1, intermediate=40)
SHAPES = [
    dict(SMALL, hidden=48),
    dict(SMALL, heads=4, kv_heads=2, hidden=32),
    dict(SMALL, intermediate=64),
    dict(SMALL, layers=4),
    dict(hidden=48, layers=3, heads=4, kv_heads=2, intermediate=96),
]


def small() -> LlamaForCausalLM:
    torch.manual_seed(1)
    net = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=12,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    ).double()
    for name, weight in net.named_parameters():
        torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.3)
    return net


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: " ".join(map(str, s.values())))
def test_the_logits_are_the_old_ones(shape):
    old, ids = small(), torch.randint(0, 50, (3, 20), generator=torch.Generator().manual_seed(0))
    new = grow_model(old, shape).double()
    with torch.inference_mode():
        assert float((new(ids).logits - old(ids).logits).abs().max()) < 1e-5
    assert sum(w.numel() for w in new.parameters()) > sum(w.numel() for w in old.parameters())


def test_every_new_part_learns():
    """Half of every new part is zero, so that the function stays; a step or two later gradients reach all
    of it."""
    new, ids = (
        grow_model(small(), SHAPES[-1]).double(),
        torch.randint(0, 50, (4, 20), generator=torch.Generator().manual_seed(0)),
    )
    begin = {name: weight.detach().clone() for name, weight in new.named_parameters()}
    adam = torch.optim.Adam(new.parameters(), 1e-3)
    for _ in range(3):
        new(ids, labels=ids).loss.backward()
        adam.step()
        adam.zero_grad()
    assert [
        name
        for name, weight in new.named_parameters()
        if float((weight != begin[name]).double().mean()) < 0.9
    ] == []


@pytest.mark.parametrize(
    "shape, why", [(dict(SMALL, hidden=12), "hidden"), (dict(SMALL, heads=4), "heads / kv_heads")]
)
def test_a_shape_that_would_lose_something_is_refused(shape, why):
    with pytest.raises(ValueError, match=why):
        grow_model(small(), shape)


@pytest.mark.parametrize("shape", [(48, 96), (96, 48), (40, 40), (7, 30)])
@pytest.mark.parametrize("block", [16, 1000])
def test_blocks_of_an_update_are_nearly_orthogonal(shape, block):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    y = orthogonal_blocks(x, block, 6)
    y = y if shape[0] <= shape[1] else y.T
    size = max(n for n in range(1, min(block, len(y)) + 1) if len(y) % n == 0)
    values = torch.cat([torch.linalg.svdvals(part) for part in y.split(size)])
    assert 0.6 < float(values.min()) and float(values.max()) < 1.3


def test_a_whole_block_is_muons_own_step():
    weight, gradient = torch.randn(24, 40), torch.randn(24, 40)
    ours, theirs = (torch.nn.Parameter(weight.clone()) for _ in range(2))
    ours.grad, theirs.grad = gradient.clone(), gradient.clone()
    BlockMuon([ours], 0.1, 0.95, 0.1, 5, 24).step()
    torch.optim.Muon([theirs], lr=0.1, momentum=0.95, weight_decay=0.1, ns_steps=5).step()
    assert float((ours - theirs).detach().abs().max()) < 0.02, "torch's own computes in bfloat16"


@pytest.mark.parametrize("has", ["_is_amx_tile_supported", "_is_avx512_bf16_supported", "nothing"])
def test_the_number_format_follows_the_instructions_of_the_processor(has, monkeypatch):
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name == has, raising=False)
    assert (
        bfloat16_is_faster(torch.device("cpu")) is (has != "nothing")
        and bfloat16_is_faster(torch.device("cuda")) is True
    )
