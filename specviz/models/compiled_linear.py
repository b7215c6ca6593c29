"""Int8 linear layers (W8A8) by the compiled products (kernels/): weights and activations in int8, as in
LLM.int8() (2208.07339) and SmoothQuant (2211.10438), with one scale per weight row and one per activation
row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.matrix import Int8Matrix
from ..kernels.memory import Arena
from ..kernels.vector import ISA
from .int8 import MOST, quantise_rows
from .linear import Layout, PlainLinear


class CompiledInt8Linear(PlainLinear):
    """An int8 linear layer: y = x W^T + b, x [rows, in]. int16_input: quantise x to 16 bits. order, columns:
    of the packed outputs (kernels/matrix.py). head_dim: the input consists of heads of this size, which the
    matrix [out, padded in] has padded."""

    kernel = "int8"

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        int16_input: bool = False,
        order: np.ndarray | None = None,
        columns: int = 0,
        head_dim: int = 0,
        arena: Arena | None = None,
    ):
        values, scales = quantise_rows(weight)
        self.int16_input = int16_input
        self._head_dim = head_dim
        self.matrix = Int8Matrix(
            values.numpy(),
            (scales.double() / MOST).float().numpy(),
            None if bias is None else bias.float().numpy(),
            order,
            columns,
            arena,
        )
        self._places: Tensor | None = None  # of each output among the packed ones
        if order is not None:
            places = np.zeros(len(weight), np.int64)
            places[order[order >= 0]] = np.flatnonzero(order >= 0)
            self._places = torch.from_numpy(places)

    def __call__(self, x: Tensor) -> Tensor:
        matrix = self.matrix
        if self._head_dim and x.shape[1] < matrix.width:
            heads = x.unflatten(1, (-1, self._head_dim))
            x = F.pad(heads, (0, matrix.width // heads.shape[1] - self._head_dim)).flatten(1)
        given = F.pad(x.float(), (0, matrix.inputs - x.shape[1])).contiguous()
        out = torch.empty(len(x), matrix.outputs)
        matrix.multiply(given.numpy(), out.numpy(), self.int16_input)
        return out[:, : matrix.rows] if self._places is None else out[:, self._places]

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        return residual + self(x)


class CompiledInt8Layout(Layout):
    """Layout of a model whose matrices are all int8, packed side by side."""

    def __init__(self):
        super().__init__()
        self.kernel = f"{CompiledInt8Linear.kernel}, {ISA}"
        self._arena = Arena()

    def __call__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        int16_input: bool = False,
        order: np.ndarray | None = None,
        columns: int = 0,
        head_dim: int = 0,
    ) -> CompiledInt8Linear:
        return CompiledInt8Linear(weight, bias, int16_input, order, columns, head_dim, self._arena)
