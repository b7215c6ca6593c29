"""The compiled int8 products are those of integers, whatever the shape and the number of rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from specviz.kernels.matrix import Int8Matrix, columns_of
from specviz.models.compiled_linear import CompiledInt8Linear
from specviz.models.int8 import MOST, quantise_rows

SHAPES = [(96, 64), (48, 32), (40, 48), (130, 24), (256, 336), (16, 16), (32, 1536), (32, 4096)]


def case(out: int, width: int, rows: int):
    rng = torch.Generator().manual_seed(out + width + rows)
    x = torch.randn(rows, width, generator=rng) * torch.rand(rows, 1, generator=rng) * 9
    return torch.randn(out, width, generator=rng), torch.randn(out, generator=rng), x


def by_hand(weight, bias, x, fine=False):
    """The product of integers of 64 bits, then the scales in double precision."""
    numbers, steps = quantise_rows(weight)
    largest = x.abs().amax(1, True)
    scaled = x * (torch.tensor(float(MOST)) / largest)
    whole = scaled.round()
    product = whole.double() @ numbers.double().t()
    if fine:
        lengths = scaled.abs().double().sum(1, keepdim=True)
        parts = ((16909320 - x.shape[1]) / (1.001 * lengths + 1)).floor().clamp(max=128)
        product += ((scaled - whole) * parts).round().double() @ numbers.double().t() / parts
    return (product * steps.double() / MOST * largest.double() + bias).float()


@torch.inference_mode()
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fine", [False, True])
def test_products_are_those_of_integers(shape, fine):
    for rows in (1, 2, 3, 5, 7, 9, 33):
        weight, bias, x = case(*shape, rows)
        layer = CompiledInt8Linear(weight, bias, fine)
        found = layer(x)
        want = by_hand(weight, bias, x, fine)
        assert found.shape == want.shape
        assert (found - want).abs().max() <= 1e-5 * want.abs().max()
        assert torch.equal(layer(x[-1:]), found[-1:])  # the same bits alone
        apart = float((found - F.linear(x, weight, bias)).norm() / F.linear(x, weight, bias).norm())
        assert 1e-4 < apart < 0.03


@torch.inference_mode()
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_as_large_as_can_be_stay_integers(sign):
    weight = torch.full((32, 4096), 0.5)
    x = torch.full((3, 4096), sign)
    found = CompiledInt8Linear(weight, None, True)(x)
    assert torch.allclose(found, torch.full((3, 32), 2048.0 * sign), rtol=1e-5)


@torch.inference_mode()
def test_outputs_in_another_order_come_back_in_their_own():
    weight, bias, x = case(40, 32, 3)
    order = np.concatenate([np.arange(39, -1, -1), np.full(8, -1)])
    assert torch.equal(CompiledInt8Linear(weight, bias, False, order)(x), CompiledInt8Linear(weight, bias)(x))


@torch.inference_mode()
def test_a_row_of_zeros_gives_the_bias_and_no_rows_give_none():
    weight, bias, x = case(48, 32, 3)
    x[1] = 0
    layer = CompiledInt8Linear(weight, bias)
    assert torch.equal(layer(x)[1], bias)
    assert layer(x[:0]).shape == (0, 48)
    assert torch.equal(layer.add(x, x[:, :1]), layer(x) + x[:, :1])


def test_a_row_whose_sums_could_overflow_is_refused():
    with pytest.raises(NotImplementedError, match=str(2**15 + 1)):
        Int8Matrix(np.zeros((16, 2**15 + 1), np.int8), np.ones(16, np.float32))


def test_blocks_divide_among_two_threads_where_they_can():
    assert [columns_of(n) for n in (96, 128, 192, 160, 32)] == [3, 4, 3, 2, 2]
