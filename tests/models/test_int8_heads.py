"""Beside a target in eight bits a head drafts in eight bits, too, in one compiled call: nearly what its
weights say, and the same bits alone and in any tree."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from specviz.models import eagle, eagle3
from specviz.models.compiled_linear import CompiledInt8Linear
from specviz.models.heads import StreamedLinear, TargetInfo, ready
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
        assert [isinstance(layer, CompiledInt8Linear) for layer in layers] == [use_int8] * 5, use_int8


def test_a_matrix_multiplied_twice_at_once_says_the_same_row():
    net, x = head(True).fused, torch.randn(7, 256, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        assert torch.equal(net.lead(x), torch.cat([net.lead(row) for row in x.split(1)]))


def test_guesses_one_by_one_are_those_of_one_call():
    made = head(True)
    assert torch.equal(said(made, True), said(made, False))


@torch.inference_mode()
def grown(made, levels: list[list[int]], states: int) -> dict[tuple[int, ...], torch.Tensor]:
    """The outputs of a tree's nodes, by their tokens from the root on. levels: the parents of each level's
    nodes, among all nodes; a node's token is its index below its parent."""
    table = torch.randn(8, 128, generator=torch.Generator().manual_seed(3))
    embeds, features = torch.randn(5, 128, generator=torch.Generator().manual_seed(1)), None
    features = torch.randn(5, states, generator=torch.Generator().manual_seed(2))
    rows = made.open()
    outs, paths = [rows.read(embeds, features)[-1]], [()]
    for parents in levels:
        tokens = [parents[:i].count(parent) for i, parent in enumerate(parents)]
        fed = torch.stack([outs[parent + 1] for parent in parents])
        depths = [len(paths[parent + 1]) + 1 for parent in parents]
        outs += rows.branch(table[tokens], fed, parents, depths)
        paths += [(*paths[parent + 1], token) for parent, token in zip(parents, tokens)]
    return dict(zip(paths[1:], outs[1:]))


def eagle3_head(use_int8: bool) -> eagle3.Eagle3:
    torch.manual_seed(0)
    body = TargetInfo("toy", 128, 40, 8, config=LIKE, use_int8=use_int8)
    flags = {"fc_norm": True, "qk_norm": True, "layers": 2, "norm_before_residual": True}
    return ready(eagle3.build(body, flags), body)


@pytest.mark.parametrize("build, states", [(head, 128), (eagle3_head, 384)], ids=["eagle", "eagle3"])
def test_a_node_of_a_tree_has_the_same_bits_alone_and_beside_others_and_is_near_the_float_layers(
    build, states
):
    made = build(True)
    whole = grown(made, [[-1, -1], [0, 1, 1], [4, 2, 2]], states)
    path = grown(made, [[-1, -1], [1, 1], [3]], states)
    assert set(path) < set(whole) and all(torch.equal(out, whole[key]) for key, out in path.items())
    floats = grown(build(False), [[-1, -1], [0, 1, 1], [4, 2, 2]], states)
    assert len(whole) == 8 and all(F.cosine_similarity(whole[k], floats[k], 0) > 0.999 for k in whole)


def test_a_change_of_the_text_changes_what_follows():
    made = head(True)
    with torch.inference_mode():
        embeds, features = torch.randn(2, 6, 128, generator=torch.Generator().manual_seed(1)).unbind(0)
        other = features.clone()
        other[1] += 1.0
        first, second = made.open().read(embeds, features), made.open().read(embeds, other)
    assert torch.equal(first[0], second[0]) and not any(map(torch.equal, first[1:], second[1:]))


def test_a_large_matrix_of_any_head_is_read_in_eight_bits():
    torch.manual_seed(0)
    module = ready(nn.Sequential(nn.Linear(256, 512)), TargetInfo("toy", 256, 8, 1, use_int8=True))
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
    assert type(module[0].forward) is StreamedLinear
    with torch.inference_mode():
        found, want = module[0](x), F.linear(x, module[0].weight, module[0].bias)
        before = module[0].forward._run
        assert (
            isinstance(before, CompiledInt8Linear)
            and 0 < (found - want).abs().max() < 0.02 * want.abs().max()
        )
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
    assert body_of("toy", model).use_int8 == use_int8
