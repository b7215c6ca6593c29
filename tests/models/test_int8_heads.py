"""Beside a target in eight bits a head drafts in eight bits, too: nearly what its weights say, and the same
in every company."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from specviz.models import eagle
from specviz.models.heads import StreamedLinear, TargetInfo, ready
from specviz.models.int8 import Int8Linear, has_byte_products
from specviz.zoo.trained_heads import body_of

LIKE = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 160}


def head(use_int8: bool, hidden: int = 128) -> eagle.Eagle:
    torch.manual_seed(0)
    body = TargetInfo("toy", hidden, 40, 2, config=LIKE, use_int8=use_int8)
    made = ready(eagle.build(body, {}), body)
    with torch.no_grad():
        for part in made.parameters():
            part.copy_(part.half().float())
    return made


@torch.inference_mode()
def said(made: eagle.Eagle, together: bool) -> torch.Tensor:
    """Guesses [6, hidden] of six pairs, read in one call or one by one."""
    embeds, features = torch.randn(2, 6, 128, generator=torch.Generator().manual_seed(1)).unbind(0)
    rows = made.open()
    return (
        rows.read(embeds, features)
        if together
        else torch.cat([rows.read(*pair) for pair in zip(embeds.split(1), features.split(1))])
    )


def test_its_guesses_are_near_and_not_the_same():
    floats, use_int8 = said(head(False), True), said(head(True), True)
    near = F.cosine_similarity(floats, use_int8, dim=-1)
    assert 0.999 < near.min() and not torch.equal(floats, use_int8)


def test_every_matrix_of_its_layer_is_in_eight_bits_and_none_beside_floats():
    for use_int8 in (True, False):
        net = head(use_int8).fused
        layers = [net.lead, *(getattr(net.blocks[0], name) for name in ("qkv", "out", "gate_up", "down"))]
        assert [isinstance(layer, Int8Linear) for layer in layers] == [use_int8] * 5, use_int8


def test_a_matrix_multiplied_twice_at_once_says_the_same_row():
    net, x = head(True).fused, torch.randn(7, 256, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        assert torch.equal(net.lead(x), torch.cat([net.lead(row) for row in x.split(1)]))


def test_guesses_one_by_one_are_those_of_one_call():
    made = head(True)
    assert (said(made, True) - said(made, False)).abs().max() < 0.02 * said(made, True).abs().max()


def test_a_large_matrix_of_any_head_is_read_in_eight_bits():
    torch.manual_seed(0)
    module = ready(nn.Sequential(nn.Linear(256, 512)), TargetInfo("toy", 256, 8, 1, use_int8=True))
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
    assert type(module[0].forward) is StreamedLinear
    with torch.inference_mode():
        found, want = module[0](x), F.linear(x, module[0].weight, module[0].bias)
        before = module[0].forward._run
        assert isinstance(before, Int8Linear) and 0 < (found - want).abs().max() < 0.02 * want.abs().max()
    with torch.no_grad():
        module[0].weight.zero_()
    with torch.inference_mode():
        assert (
            torch.equal(module[0](x), module[0].bias.expand(3, -1)) and module[0].forward._run is not before
        )


@pytest.mark.parametrize("numbers, use_int8", [("int8", True), ("float32", False), (None, False)])
def test_a_head_reports_in_what_its_target_multiplies(numbers, use_int8):
    class Model:
        hidden = 8
        vocab = 12
        layers = 2
        device = "cpu"
        dtype = torch.float32
        config = {}

    model = Model()
    if numbers:
        model.numbers = numbers
    assert body_of("toy", model).use_int8 == (use_int8 and has_byte_products())
