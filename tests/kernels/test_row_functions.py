"""Compiled functions of single rows: as torch's, and a row's result does not depend on other rows."""

from __future__ import annotations

import pytest
import torch

from specviz.kernels.row_functions import top_entries
from specviz.trees import top_k, top_log_probs
from specviz.trees.draws import _compiled_top

WIDTH = 4096


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed)) * 4


@pytest.mark.parametrize("count", [1, 7, 64])
@pytest.mark.parametrize("scale", [1.0, 0.4, 3.0])
def test_entries_places_and_sums_are_those_of_torch(count, scale):
    x = rows(5)
    x[1, 100:4000] = -torch.inf  # few tokens may be drafted
    values, places, sums = (torch.from_numpy(part) for part in top_entries(x.numpy(), count, scale))
    wanted = x.topk(count)
    assert torch.equal(values, wanted.values) and torch.equal(places, wanted.indices)
    torch.testing.assert_close(sums, (x * scale).logsumexp(-1), rtol=1e-6, atol=1e-6)


def test_the_earlier_of_equal_entries_comes_first():
    x = torch.zeros(1, WIDTH)
    x[0, [9, 40, 4000]] = 1.0
    values, places, _ = top_entries(x.numpy(), 5)
    assert places[0].tolist() == [9, 40, 4000, 0, 1]
    assert values[0].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_a_row_does_not_depend_on_others():
    x = rows(6, 1)
    for whole, alone in zip(
        top_entries(x.numpy(), 9), zip(*(top_entries(row.numpy(), 9) for row in x.split(1)))
    ):
        assert whole.tolist() == [part[0].tolist() for part in alone]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_likely_tokens_are_those_of_the_softmax(temperature):
    x = rows(3, 2)
    found = top_log_probs(x, 8, temperature)
    wanted = (x / temperature).log_softmax(-1).topk(8)
    torch.testing.assert_close(found[0], wanted.values, rtol=1e-5, atol=1e-5)
    assert torch.equal(found[1], wanted.indices) and bool((found[0] <= 0).all())


def test_a_row_with_too_few_tokens_is_left_to_torch():
    x = torch.full((2, WIDTH), -torch.inf)
    x[:, [5, 8]] = torch.tensor([1.0, 2.0])
    assert _compiled_top(x, 3, 1.0) is None
    values, tokens = top_k(x, 3)
    assert tokens[:, :2].tolist() == [[8, 5]] * 2 and bool(values[:, 2].isinf().all())
