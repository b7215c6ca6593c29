"""Orthogonal rotation of the residual stream (QuaRot, Ashkboos et al. 2404.00456), for forward passes that
quantise it.

The hidden states of a language model have a few entries far larger than the rest, and quantising a row by
its largest entry costs the others their precision. A rotation spreads each entry over all of them. With the
norm weights folded into the matrices, RMSNorm commutes with the rotation, so the whole residual stream can
be rotated by changing weights only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

ROWS = 256  # rotated at a time: what fits into a processor's cache
SEED = 7  # of the random signs: of 0 to 7 that with the least KL for SmolLM2-135M-Instruct (docs/log/2026-11/models.md)


class Basis:
    """An orthogonal matrix for a given width: random signs (seeded), a Hartley matrix for the odd factor of
    the width, and a Hadamard matrix for its power of two.

    matrix: the product, [width, width], float64.
    """

    def __init__(self, width: int):
        odd = width // (width & -width)
        turns = (torch.outer(torch.arange(odd), torch.arange(odd)) % odd).double() * (2 * math.pi / odd)
        self._hartley, self._hadamard = (
            (turns.cos() + turns.sin()) / odd**0.5,
            torch.ones(1, 1, dtype=torch.float64),
        )
        while len(self._hadamard) < width // odd:
            self._hadamard = torch.kron(
                self._hadamard, torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64) / 2**0.5
            )
        self._signs = (
            torch.randint(0, 2, (width,), generator=torch.Generator().manual_seed(SEED)).double() * 2 - 1
        )
        self.matrix = self._signs[:, None] * torch.kron(self._hartley, self._hadamard)

    def rotate(self, weight: Tensor) -> Tensor:
        """Return weight [rows, width] times the matrix, in the weight's own precision, computed from the
        two factors."""
        weight = weight.contiguous()  # products of a transposed view take seven times as long
        out = torch.empty_like(weight)
        signs, hadamard, hartley = (
            part.to(weight.dtype) for part in (self._signs, self._hadamard, self._hartley)
        )
        for part, made in zip(weight.split(ROWS), out.split(ROWS)):
            halves = (part * signs).unflatten(1, (len(hartley), -1)) @ hadamard
            torch.matmul(hartley, halves, out=made.view_as(halves))
        return out

    def compiled(self, back: bool) -> tuple[Any, tuple[np.ndarray, ...]]:
        """Return the compiled function of a product with the matrix (``back``: with its transpose), and its
        factors (kernels/row_functions.py)."""
        from ..kernels.row_functions import rotate_rows  # imports numba

        signs = self._signs.float().numpy()
        hartley = (self._hartley / len(self._hadamard) ** 0.5).float().contiguous().numpy()
        ones = np.ones_like(signs)
        return rotate_rows, (ones, hartley, signs) if back else (signs, hartley, ones)


class Rotate:
    """Multiply states [rows, width] by a basis' matrix, or (``back``) by its transpose. A row's result does not
    depend on other rows."""

    def __init__(self, basis: Basis, back: bool = False):
        self._run, self._factors = basis.compiled(back)

    def __call__(self, x: Tensor) -> Tensor:
        """Return x [rows, width] times the matrix."""
        given = x.float().contiguous()
        out = torch.empty_like(given)
        before, hartley, after = self._factors
        self._run(given.numpy(), before, hartley, after, out.numpy())
        return out.to(x.dtype)


class FinalStates:
    """Convert the rotated residual stream [rows, width], normalised without a weight, to the checkpoint's
    final hidden states. weight: of the final norm."""

    def __init__(self, basis: Basis, weight: Tensor):
        self.unrotate, self.weight = Rotate(basis, back=True), weight

    def __call__(self, normed: Tensor) -> Tensor:
        """Return the checkpoint's final hidden states [rows, width]."""
        return self.unrotate(normed).mul_(self.weight)
