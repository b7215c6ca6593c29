"""The rotation of the residual stream: orthogonal, exact for every row, and undone exactly enough."""

from __future__ import annotations

import pytest
import torch

from specviz.models.rotation import Basis, FinalStates, Rotate


@pytest.mark.parametrize("width", [8, 32, 48, 576, 35])
def test_basis_is_orthogonal_and_spreads_a_single_entry(width):
    matrix = Basis(width).matrix
    assert torch.allclose(matrix @ matrix.t(), torch.eye(width, dtype=torch.float64), atol=1e-12)
    assert float(matrix.abs().max()) <= (2 / width) ** 0.5 + 1e-12
    assert torch.equal(matrix, Basis(width).matrix)


def test_rotate_by_factors_equals_the_product_with_the_matrix():
    basis, weight = Basis(96), torch.randn(5000, 96, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(basis.rotate(weight), (weight.double() @ basis.matrix).float(), atol=1e-6)


@pytest.mark.parametrize("width", [8, 32, 35, 96, 576])
def test_the_compiled_rotation_is_the_product_with_the_matrix(width):
    basis, x = Basis(width), torch.randn(5, width, generator=torch.Generator().manual_seed(2))
    wanted = (x.double() @ basis.matrix).float()
    assert torch.allclose(Rotate(basis)(x), wanted, atol=3e-6)
    assert torch.allclose(Rotate(basis, back=True)(wanted), x, atol=3e-6)


@torch.inference_mode()
def test_rows_are_bit_identical_in_every_batch_and_come_back():
    basis, x = Basis(576), torch.randn(40, 576, generator=torch.Generator().manual_seed(1)) * 30
    x[3, 7] = 9000.0  # a massive activation
    there, back = Rotate(basis), Rotate(basis, back=True)
    for module in (there, back, FinalStates(basis, torch.rand(576))):
        alone = torch.cat([module(row) for row in x.split(1)])
        assert torch.equal(module(x), alone) and torch.equal(module(x.flip(0)).flip(0), alone)
    assert ((back(there(x)) - x).norm(dim=1) <= 1e-5 * x.norm(dim=1)).all()
