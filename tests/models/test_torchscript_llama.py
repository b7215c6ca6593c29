"""Compiled halves of a block say to the last bit what the block says, in every layout of the weights; where
that cannot be had, the block runs as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specviz.core import DraftTree
from specviz.models import eagle3, llama, torchscript
from specviz.models import torchscript_llama as scripted
from specviz.models.heads import TargetInfo
from specviz.models.learning import LearningLlama
from specviz.models.linear import (
    HalfLinear,
    Layout,
    PackedLinear,
    PlainLinear,
    TransposedLinear,
    TwoLayouts,
    without_timing,
)
from specviz.targets.fast import FastModel
from specviz.targets.int8 import Int8Model

from ..targets.tiny import FAST, checkpoint
from .test_eagle3 import VOCAB, D, published

LAYOUTS = {
    "plain": (PlainLinear, PlainLinear),
    "transposed": (TransposedLinear, TransposedLinear),
    "packed": (PackedLinear, PackedLinear),
    "half": (HalfLinear, HalfLinear),
    "two": (TransposedLinear, PlainLinear),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


def stored(monkeypatch, kinds):
    """Weights loaded from now on lie so; all of them are 16-bit numbers."""
    monkeypatch.setattr(
        llama, "fastest_layout", lambda weights, total: Layout({tuple(w.shape): kinds for w in weights})
    )
    get, get_optional = llama.Weights.get, llama.Weights.get_optional
    monkeypatch.setattr(llama.Weights, "get", lambda *asked: get(*asked).half().float())
    monkeypatch.setattr(
        llama.Weights,
        "get_optional",
        lambda *asked: None if (found := get_optional(*asked)) is None else found.half().float(),
    )


@torch.inference_mode()
def apart(net, block, n, at, masked, wide=None) -> bool:
    """Whether the compiled halves of a block and the block itself differ in a bit."""
    assert block.attend is not None and block.transform is not None
    rng = torch.Generator().manual_seed(n + at)
    x = torch.randn(n, net.hidden, generator=rng)
    reads = None if wide is None else torch.randn(n, wide, generator=rng)
    buffers = [
        torch.randn(2, net.kv_heads, at + n + 3, net.head_dim, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    ]
    mask = torch.zeros(net.group * n, at + n).masked_fill_(
        torch.rand(net.group * n, at + n, generator=rng) < 0.3, -torch.inf
    )
    mask[:, 0] = 0
    told = []
    for each, room in zip((block, replace(block)), buffers):
        y = net.attend(each, x, net.rotations(at + n)[at : at + n], room, at, mask if masked else None, reads)
        told.append((y, net.transform(each, y)))
    return not (torch.equal(*buffers) and all(map(torch.equal, *told)))


def test_a_copy_of_a_block_is_not_compiled(folder):
    block = FastModel(checkpoint(folder, "llama")).blocks[0]
    assert block.attend is not None and replace(block).attend is None and replace(block).transform is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", FAST)
def test_compiled_halves_say_the_same_bits(folder, kind, layout, monkeypatch):
    stored(monkeypatch, LAYOUTS[layout])
    model = FastModel(checkpoint(folder, kind))
    held = {type(part) for part in (model.blocks[1].qkv, model.blocks[1].down)}
    assert held == ({TwoLayouts} if layout == "two" else {LAYOUTS[layout][0]})
    for n in (1, 2, 5, 9):
        for at in (0, 7):
            for masked in (False, True):
                assert not apart(model, model.blocks[1], n, at, masked), (n, at, masked)


def test_a_layer_that_reads_more_than_its_residual_is_compiled_too(tmp_path):
    published(tmp_path / "head", "whole")
    net = eagle3.load(
        tmp_path / "head", TargetInfo("toy", D, VOCAB, 8, torch.device("cpu"), torch.float32)
    ).fused
    assert not any(apart(net, net.blocks[0], n, at, False, wide=2 * D) for n in (1, 4) for at in (0, 5))


def test_weights_that_change_and_wider_numbers_are_not_compiled(folder):
    path = checkpoint(folder, "qwen3")
    models = (
        LearningLlama(FastModel(path)),
        FastModel(path, dtype=torch.float64),
        FastModel(path, dtype=torch.bfloat16),
    )
    assert [(block.attend, block.transform) for model in models for block in model.blocks] == [
        (None, None)
    ] * 9
    assert [model.scripted for model in models] == [None] * 3


class WithoutResidual(scripted.ScriptedFeedForward):
    def forward(self, x):
        gate, up = self.gate_up(self.norm(x)).chunk(2, 1)
        return self.down(torch.nn.functional.silu(gate) * up)


def test_what_says_something_else_is_not_used(folder, monkeypatch):
    monkeypatch.setattr(scripted, "ScriptedFeedForward", WithoutResidual)
    assert all(
        block.attend is block.transform is None for block in FastModel(checkpoint(folder, "llama")).blocks
    )


def test_where_nothing_can_be_compiled_the_forward_is_the_same(folder, monkeypatch):
    path = checkpoint(folder, "llama")
    scripted = FastModel(path)

    def none(module):
        raise RuntimeError("there is no compiler in this torch")

    monkeypatch.setattr(torch.jit, "script", none)
    plain = FastModel(path)
    assert plain.blocks[0].attend is None
    ids = list(range(3, 20))
    said = []
    for model in (scripted, plain):
        target = model.open()
        said.append(target.sync(ids).logits)
    assert torch.allclose(*said, atol=1e-5)


@pytest.mark.parametrize("kind", FAST)
def test_all_blocks_in_a_row_say_what_they_say_one_by_one(folder, kind):
    model = FastModel(checkpoint(folder, kind))
    scripted = model.scripted
    assert scripted is not None
    rng = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        for first, end, n, at in ((0, model.layers, 5, 3), (1, model.layers, 1, 0), (0, 1, 2, 7)):
            x, told = torch.randn(n, model.hidden, generator=rng), []
            for whole in (scripted, None):
                room, model.scripted = (
                    torch.ones(model.layers, 2, model.kv_heads, at + n, model.head_dim),
                    whole,
                )
                y, found = model.run_blocks(
                    x, model.rotations(at + n)[at : at + n], room, at, None, first, end, [end - 1]
                )
                told.append((y, *found, room))
            assert len(told[0]) == 3 and all(map(torch.equal, *told))


class Forgetful(scripted.Layers):
    def forward(
        self, x, turn, slots, at: int, mask: torch.Tensor | None, first: int, end: int, wanted: list[int]
    ):
        found: list[torch.Tensor] = []
        return x, found


def test_blocks_in_a_row_that_say_something_else_are_not_used(folder, monkeypatch):
    monkeypatch.setattr(scripted, "Layers", Forgetful)
    model = FastModel(checkpoint(folder, "llama"))
    assert model.scripted is None and model.blocks[0].attend is not None


@pytest.mark.parametrize("kind", FAST)
def test_nothing_falls_back_to_plain_code_silently(folder, kind):
    made = FastModel(checkpoint(folder, kind))
    assert made.uncompiled is None and made.scripted is not None and made.writer is not None
    compiled = Int8Model(checkpoint(folder, kind))
    assert compiled.compiled is not None and compiled.can_generate


def test_a_fallback_records_its_reason(folder, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no TorchScript here")

    monkeypatch.setattr(torch.jit, "freeze", broken)
    monkeypatch.setattr("specviz.models.torchscript._frozen", 0)
    monkeypatch.setattr(
        "specviz.models.torchscript._frozen_bytes", 0
    )  # other tests of this process may have reached the limit
    made = FastModel(checkpoint(folder, "llama"))
    assert made.uncompiled == "RuntimeError: no TorchScript here" and made.scripted is None


@torch.inference_mode()
@pytest.mark.parametrize("limit", ["number", "bytes"])
@pytest.mark.parametrize("kind", [FastModel])
def test_models_opened_after_many_others_are_not_frozen_and_compute_the_same_bits(
    folder, monkeypatch, limit, kind
):
    """torch keeps each frozen module's graphs and weights for the rest of the process, so their number and
    bytes are bounded."""
    frozen = []
    monkeypatch.setattr(torch.jit, "freeze", lambda module, **how: frozen.append(module) or module)
    with without_timing():  # another layout rounds differently, and two layouts take twice the bytes
        size = kind(checkpoint(folder, "llama")).block_bytes
    assert size > 0
    monkeypatch.setattr(torchscript, "_frozen", torchscript.MOST_FROZEN - 1 if limit == "number" else 0)
    monkeypatch.setattr(
        torchscript,
        "_frozen_bytes",
        torchscript.MOST_FROZEN_BYTES - int(1.5 * size) if limit == "bytes" else 0,
    )
    frozen.clear()
    with without_timing():
        models = [kind(checkpoint(folder, "llama")) for _ in range(3)]
    assert len(frozen) == 1 and all(model.scripted is not None for model in models)
    rows = []
    for model in models:
        target = model.open()
        target.sync([5, 9, 30])
        rows.append(target.score(DraftTree.chain([7, 3])).logits)
    assert all(torch.equal(row, rows[0]) for row in rows)
