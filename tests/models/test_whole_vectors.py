"""Elementwise functions and the int8 forward give a row the same bits with 1 to 8 threads and in batches of
1 to 64 rows."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from specviz.core import DraftTree
from specviz.models.whole_vectors import PIECE, VECTORS, exp2_, rotate_, silu
from specviz.targets.int8 import Int8Model

from ..targets.tiny import VOCAB, checkpoint

THREADS = range(1, 9)
ROWS = range(1, 65)


@pytest.fixture(params=THREADS)
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def alone(function, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    return torch.cat(
        [function(row, *(other[i : i + 1] for other in more)) for i, row in enumerate(x.split(1))]
    )


def rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    rotate_(y, turn)
    return y


@torch.inference_mode()
def test_silu_and_rotation_of_a_row(threads):
    rng = torch.Generator().manual_seed(threads)
    for n in (*ROWS, 200, 512):
        x = torch.randn(n, 2 * 1500, generator=rng) * 4
        assert torch.equal(silu(x[:, :1500]), alone(silu, x[:, :1500])), n
    x, turn = (
        torch.randn(512, 12, 64, generator=rng),
        torch.polar(torch.ones(512, 1, 32), torch.rand(512, 1, 32, generator=rng)),
    )
    assert torch.equal(rotated(x, turn), alone(rotated, x, turn))


@torch.inference_mode()
def test_exp2_at_any_place(threads):
    x = torch.randn(5 * PIECE + VECTORS, generator=torch.Generator().manual_seed(0)) * 5
    assert torch.equal(exp2_(x.clone()), torch.cat([exp2_(part.clone()) for part in x.split(VECTORS)]))
    assert torch.equal(exp2_(x.roll(7)).roll(-7), exp2_(x.clone()))


@torch.inference_mode()
def test_the_plain_functions_fail_this():
    """torch's own exp2 depends on the place of an element, and SiLU on the number of threads."""
    x = torch.randn(5 * PIECE, generator=torch.Generator().manual_seed(0)) * 5
    assert not torch.equal(x.exp2(), torch.cat([part.exp2() for part in x.split(7)]))
    before = torch.get_num_threads()
    torch.set_num_threads(7)
    try:
        x = torch.randn(512, 3000, generator=torch.Generator().manual_seed(0)) * 4
        assert not torch.equal(F.silu(x[:, :1500]), alone(F.silu, x[:, :1500]))
    finally:
        torch.set_num_threads(before)


def test_int8_logits_in_every_batch_and_with_every_number_of_threads(tmp_path):
    model = Int8Model(checkpoint(tmp_path, "llama3"))
    found = []
    before = torch.get_num_threads()
    tokens = torch.arange(3, 67).remainder(VOCAB).tolist()
    try:
        for threads in THREADS:
            torch.set_num_threads(threads)
            for n in ROWS[:: 9 if threads > 1 else 1]:
                target = model.open()
                target.sync([5, 2, 7, tokens[0]])
                found.append(target.score(DraftTree.chain(tuple(tokens[1:n]))).logits)
    finally:
        torch.set_num_threads(before)
    longest = max(found, key=len)
    assert all(torch.equal(logits, longest[: len(logits)]) for logits in found)
