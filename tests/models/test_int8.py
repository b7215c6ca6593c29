"""Eight bits a number: what is rounded, that sums are exact however they are made, and that only exact ones
would do."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from specviz.models import int8
from specviz.models.int8 import MOST, FloatInt8Kernel, Int8Linear, VnniInt8Kernel, quantise_rows
from specviz.models.torchscript import scripted, weight_bytes

SHAPES = [(96, 64), (33, 50), (40, 1500)]  # out, in; the last is wider than one exact sum of floats


def case(out: int, width: int, rows: int, seed: int = 0):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=rng) * torch.rand(rows, 1, generator=rng) * 9
    return torch.randn(out, width, generator=rng), torch.randn(out, generator=rng), x


def by_hand(weight, bias, x):
    """The same in whole numbers of 64 bits."""
    numbers, steps = quantise_rows(weight)
    largest = x.abs().amax(1, True)
    whole = ((x * (torch.tensor(float(MOST)) / largest)) + 128).round().long() - 128
    return (whole @ numbers.long().t()).float() * (steps.double() / MOST).float() * largest + bias


def kinds():
    """Both ways to multiply, the one of bytes where this processor's are exact."""
    return [FloatInt8Kernel] + [VnniInt8Kernel] * (int8._kind() is VnniInt8Kernel)


def test_weights_are_whole_numbers_times_the_step_of_their_row():
    weight, _, _ = case(6, 40, 1)
    numbers, steps = quantise_rows(weight)
    assert numbers.dtype == torch.int8 and int(numbers.abs().amax(1).min()) == MOST
    assert ((numbers * steps[:, None] - weight).abs() <= steps[:, None] * 0.5001).all()
    assert not quantise_rows(torch.zeros(2, 3))[0].any()


@torch.inference_mode()
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_whole_numbers(shape):
    for rows in (1, 2, 5, 9, 33):
        weight, bias, x = case(*shape, rows, rows)
        for kind in kinds():
            layer = scripted(kind(*quantise_rows(weight), bias))
            assert torch.equal(layer(x), by_hand(weight, bias, x)), (kind, rows)
            assert torch.equal(layer(x[-1:]), layer(x)[-1:])
        apart = (by_hand(weight, bias, x) - F.linear(x, weight, bias)).norm() / F.linear(
            x, weight, bias
        ).norm()
        assert 1e-4 < apart < 0.03  # rounded, and by little


@torch.inference_mode()
def test_a_layer_says_what_its_module_says_also_of_rows_of_zeros():
    weight, bias, x = case(16, 32, 4)
    x[1] = 0
    layer = Int8Linear(weight, bias)
    assert torch.equal(layer(x)[[0, 2, 3]], by_hand(weight, bias, x[[0, 2, 3]]))
    assert torch.equal(layer(x)[1], bias) and torch.equal(layer.add(x, x[:, :16]), layer(x) + x[:, :16])


def test_a_processor_whose_products_of_bytes_are_cut_off_multiplies_floats(monkeypatch):
    """Without VNNI two products are added up in 16 bits."""

    class Cut(VnniInt8Kernel):
        def multiply(self, x):
            return super().multiply(x).clamp(max=2.0**15)

    monkeypatch.setattr(int8, "VnniInt8Kernel", Cut)
    assert int8._kind.__wrapped__() is FloatInt8Kernel


@torch.inference_mode()
def test_where_there_is_no_fbgemm_floats_are_multiplied_plainly(monkeypatch):
    """As on processors that are none of x86."""

    def none():
        raise RuntimeError("quantized engine FBGEMM is not supported")

    monkeypatch.setattr(int8, "_fbgemm", none)
    assert int8._kind.__wrapped__() is FloatInt8Kernel
    for shape in SHAPES:
        weight, bias, x = case(*shape, 5)
        assert torch.equal(
            scripted(FloatInt8Kernel(*quantise_rows(weight), bias))(x), by_hand(weight, bias, x)
        )


def test_a_sum_of_two_pieces_holds_no_wider_row():
    with pytest.raises(NotImplementedError, match=str(2 * int8.WIDTH + 1)):
        FloatInt8Kernel(*quantise_rows(torch.ones(1, 2 * int8.WIDTH + 1)), None)


def test_weights_are_packed_once():
    """Where a row fits into one exact sum there is nothing for a second product to hold."""
    for out, width in SHAPES:
        kernel = FloatInt8Kernel(*quantise_rows(torch.randn(out, width)), None)
        scales = 4 * out + 2 * kernel.most.nbytes
        assert weight_bytes(kernel) == 2 * out * width + scales
        assert sum(map(weight_bytes, {kernel.first, kernel.second})) == 2 * out * width
