"""Eight bits a number: what is rounded, that sums are exact however they are made, and that only exact ones
would do."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from specviz.models import int8
from specviz.models.exact_attention import ExactAttention
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


# --- attention ---------------------------------------------------------------------------------------------------------
def heads(slots: int, rows: int, seed: int = 0, bound: float = 9.0):
    """An attention, and queries [2, rows, 16] with keys and values [2, slots, 16] on its grid."""
    rng, exact = torch.Generator().manual_seed(seed), ExactAttention(bound, 2, 16)
    qkv = torch.randn(slots, 6, 16, generator=rng) * 2
    exact(qkv, 4)
    q, k, v = qkv.unflatten(1, (3, 2)).permute(1, 2, 0, 3)
    return exact, q[:, :rows].contiguous(), k.contiguous(), v.contiguous()


@torch.inference_mode()
def test_attention_is_nearly_softmax_of_what_was_not_rounded():
    rng = torch.Generator().manual_seed(1)
    qkv = torch.randn(40, 6, 16, generator=rng)
    whole = qkv.clone()
    exact = ExactAttention(9.0, 2, 16)
    exact(qkv, 4)
    assert 0 < (qkv[:, 2:] - whole[:, 2:]).abs().max() < 0.02
    assert 0 < (qkv[:, :2] - whole[:, :2] * exact.scale).abs().max() < 0.02
    mask = torch.zeros(40, 40).masked_fill_(torch.ones(40, 40).triu(1).bool(), -torch.inf)
    ours = exact.attention(*qkv.unflatten(1, (3, 2)).permute(1, 2, 0, 3), mask)
    theirs = F.scaled_dot_product_attention(*whole.unflatten(1, (3, 2)).permute(1, 2, 0, 3), mask)
    assert (ours - theirs).abs().max() < 0.03


@torch.inference_mode()
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_no_order_of_slots_and_no_company_changes_a_bit(seed, apart):
    """Slots in any order with others between them that are not seen, rows alone and together, wherever the
    mask is added. Plain attention fails this."""
    exact, q, k, v = heads(90, 7, seed)
    exact.apart = apart
    seen = torch.randperm(90, generator=torch.Generator().manual_seed(seed))[:60]
    alone = torch.cat([exact.attention(q[:, i : i + 1], k[:, seen], v[:, seen], None) for i in range(7)], 1)
    mask = torch.full((7, 90), -torch.inf)
    mask[:, seen] = 0
    assert torch.equal(exact.attention(q, k, v, mask), alone)
    plain = torch.cat(
        [F.scaled_dot_product_attention(q[:, i : i + 1], k[:, seen], v[:, seen]) for i in range(7)], 1
    )
    assert not torch.equal(F.scaled_dot_product_attention(q, k, v, mask), plain)


@torch.inference_mode()
def test_sums_stay_exact_where_they_are_largest():
    """2,048 slots that are looked at alike, heads of 256 numbers, all as large as they may be."""
    exact = ExactAttention(8.0, 1, 256)
    qkv = torch.full((2048, 3, 256), 8.0)
    qkv[::3, 2] = -7.998
    exact(qkv, 2)
    q, k, v = qkv.permute(1, 0, 2).unsqueeze(1)
    found = exact.attention(q[:, :1], k, v, None)
    assert torch.equal(found, exact.attention(q[:, :1], k.flip(1), v.flip(1), None))
    assert (found.double() - v.double().mean(1, True)).abs().max() < 1e-6


@torch.inference_mode()
def test_values_beyond_the_bound_are_cut_off():
    exact = ExactAttention(4.0, 1, 1)
    qkv = torch.tensor([[[1.0], [1.0], [5.0]]])
    exact(qkv, 2)
    assert qkv[0, 2, 0] == 4.0


def test_weights_are_packed_once():
    """Where a row fits into one exact sum there is nothing for a second product to hold."""
    for out, width in SHAPES:
        kernel = FloatInt8Kernel(*quantise_rows(torch.randn(out, width)), None)
        scales = 4 * out + 2 * kernel.most.nbytes
        assert weight_bytes(kernel) == 2 * out * width + scales
        assert sum(map(weight_bytes, {kernel.first, kernel.second})) == 2 * out * width
