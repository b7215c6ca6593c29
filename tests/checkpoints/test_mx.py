"""Weights in eight bits: MXINT8 by its specification, read back to the last bit, and a file that is
something else is refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.checkpoints import mx
from specviz.checkpoints.weights import ModelError, Weights
from specviz.methods.trained_heads.medusa import medusa_network as medusa
from specviz.models.heads import TargetInfo
from specviz.training.job import Job
from specviz.training.warm_start import copy_head_weights

from ..message_codes import refuses

CPU = torch.device("cpu")


def test_each_block_by_hand():
    """A block's scale is the power of two at or below its largest number; an element is a whole number of
    64ths of it."""
    row = torch.zeros(1, 40)
    row[0, :4] = torch.tensor([1.5, -1.0, 1 / 64, 0.011])
    row[0, 32:34] = torch.tensor([-0.2, 1.99 / 16])
    elements, exponents = mx.quantise_mxint8(row)
    assert exponents.tolist() == [[127, 124]]  # 1 and 1/8
    assert elements[0, :4].tolist() == [96, -64, 1, 1] and elements[0, 32:34].tolist() == [-102, 64]
    assert mx.dequantise_mxint8(elements, exponents)[0, 33] == 0.125
    assert mx.quantise_mxint8(torch.full((1, 32), 1.999))[0].tolist() == [[127] * 32], (
        "the largest element, and not the next scale"
    )


def test_read_back_each_number_is_as_near_as_eight_bits_can_be_and_an_exact_16_bit_float():
    torch.manual_seed(0)
    matrix = torch.randn(64, 100) * torch.logspace(-6, 3, 64)[:, None]
    found = mx.dequantise_mxint8(*mx.quantise_mxint8(matrix))
    blocks = torch.nn.functional.pad(matrix, (0, 28)).unflatten(-1, (-1, 32)).abs().amax(-1)
    step = torch.exp2(torch.floor(torch.log2(blocks)) - 6).repeat_interleave(32, -1)[:, :100]
    assert bool(((found - matrix).abs() <= step / 2).logical_or(found.abs() == 127 * step).all())
    assert torch.equal(found, found.bfloat16().float()) and torch.equal(
        mx.dequantise_mxint8(*mx.quantise_mxint8(found)), found
    )
    assert torch.equal(found[30:], found[30:].half().float())
    assert float((found - matrix).norm() / matrix.norm()) < 0.012
    assert torch.equal(mx.dequantise_mxint8(*mx.quantise_mxint8(torch.zeros(3, 50))), torch.zeros(3, 50))


def folder_of(place, tensors, **config):
    place.mkdir(exist_ok=True)
    save_file(tensors, place / "model.safetensors")
    (place / "config.json").write_text(json.dumps(config))
    return place


def test_a_head_is_the_same_read_from_eight_bits_as_from_the_numbers_they_stand_for(tmp_path):
    body = TargetInfo("toy", 128, 40, 2)
    torch.manual_seed(1)
    weights = {
        name: tensor.clone()
        for name, tensor in medusa.build(body, {"heads": 2, "layers": 1, "output": "target"})
        .state_dict()
        .items()
    }
    weights = {name: torch.randn_like(tensor) for name, tensor in weights.items()}
    told = mx.to_file_tensors(weights)
    assert any(name.endswith(mx.SCALE) for name in told) and sum(
        t.nbytes for t in told.values()
    ) < 0.27 * sum(t.nbytes for t in weights.values())
    small = medusa.load(folder_of(tmp_path / "small", told), body).state_dict()
    large = medusa.load(folder_of(tmp_path / "large", mx.from_file_tensors(told)), body).state_dict()
    assert small.keys() == weights.keys() and all(torch.equal(small[name], large[name]) for name in small)
    assert any(not torch.equal(small[name], weights[name]) for name in small)


@pytest.mark.parametrize(
    "change",
    [
        dict(w=torch.zeros(4, 64)),
        {"w.scale": torch.zeros(4, 3, dtype=torch.uint8)},
        {"w.scale": torch.zeros(4, 2)},
        {"w.scale": torch.zeros(8, dtype=torch.uint8)},
    ],
)
def test_scales_that_do_not_fit_are_refused(tmp_path, change):
    good = {"w": torch.ones(4, 64, dtype=torch.int8), "w.scale": torch.full((4, 2), 127, dtype=torch.uint8)}
    assert torch.equal(
        Weights(folder_of(tmp_path, good), CPU, torch.float32).get("w", 4, 64), torch.full((4, 64), 1 / 64)
    )
    with refuses(ModelError, "checkpoint.scales", "w of "):
        Weights(folder_of(tmp_path, good | change), CPU, torch.float32).get("w", 4, 64)
    with refuses(ModelError, "checkpoint.not_numbers"):
        Weights(
            folder_of(tmp_path, good | {"w.scale": torch.full((4, 2), 255, dtype=torch.uint8)}),
            CPU,
            torch.float32,
        ).get("w", 4, 64)


def test_a_head_may_begin_with_one_in_eight_bits(tmp_path):
    torch.manual_seed(2)
    matrix = torch.randn(128, 128)
    place = tmp_path / "models" / "Llama-specviz-eagle"
    place.parent.mkdir()
    folder_of(place, mx.to_file_tensors({"weight": matrix}))
    assert load_file(place / "model.safetensors")["weight"].dtype == torch.int8
    head = torch.nn.Linear(128, 128, bias=False)
    copy_head_weights(Job(work=tmp_path, shipped=tmp_path, device="cpu"), head, "eagle")
    assert torch.equal(head.weight.data, mx.dequantise_mxint8(*mx.quantise_mxint8(matrix)))
