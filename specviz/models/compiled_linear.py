"""Int8 linear layers (W8A8) by the compiled products (kernels/): weights and activations in int8, as in
LLM.int8() (2208.07339) and SmoothQuant (2211.10438), with one scale per weight row and one per activation
row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.matrix import Int8Matrix, columns_of
from ..kernels.memory import Arena, round_up
from ..kernels.network import Sizes
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
    """Layout of a model whose matrices are all int8, packed side by side. int16_input: quantise all inputs to
    16 bits."""

    def __init__(self, int16_input: bool = False):
        super().__init__()
        self.kernel = f"{CompiledInt8Linear.kernel}, {ISA}"
        self._int16_input = int16_input
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
        fine = int16_input or self._int16_input
        return CompiledInt8Linear(weight, bias, fine, order, columns, head_dim, self._arena)


@dataclass(frozen=True)
class PaddedSizes:
    """The sizes of a decoder layer and how its matrices are padded and ordered for the compiled pass. Each
    method returns the arguments of a CompiledInt8Layout."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int

    @cached_property
    def wide(self) -> int:
        """Padded hidden size."""
        return round_up(self.hidden, 32)

    @cached_property
    def head_wide(self) -> int:
        """Padded head_dim."""
        return round_up(self.head_dim, 16)

    @cached_property
    def columns(self) -> int:
        """Vectors of 16 outputs in a block of [gate; up]."""
        return columns_of(round_up(self.inner, 32))

    @cached_property
    def inner_wide(self) -> int:
        """Padded intermediate size."""
        return round_up(self.inner, 16 * self.columns)

    @cached_property
    def _qkv_order(self) -> np.ndarray:
        """The order of the packed outputs of the projection to queries, keys and values: each head padded."""
        heads = self.heads + 2 * self.kv_heads
        order = np.full((heads, self.head_wide), -1)
        order[:, : self.head_dim] = np.arange(heads * self.head_dim).reshape(heads, self.head_dim)
        return order.reshape(-1)

    @cached_property
    def _gate_up_order(self) -> np.ndarray:
        """The order of the packed outputs of [gate; up], in which blocks of both alternate."""
        places = np.arange(self.inner_wide).reshape(-1, 16 * self.columns)
        real = places < self.inner
        gate = np.where(real, places, -1)
        up = np.where(real, places + self.inner, -1)
        return np.concatenate([gate, up], 1).reshape(-1)

    def qkv(self, matrix: Tensor, bias: Tensor | None) -> tuple[Any, ...]:
        """Of the projection [(heads + 2 kv_heads) head_dim, in] to queries, keys and values."""
        return self._from_hidden(matrix), bias, False, self._qkv_order

    def gate_up(self, matrix: Tensor, bias: Tensor | None) -> tuple[Any, ...]:
        """Of [gate; up], [2 inner, hidden]."""
        return self._from_hidden(matrix), bias, False, self._gate_up_order, self.columns

    def out(self, matrix: Tensor, bias: Tensor | None) -> tuple[Any, ...]:
        """Of the projection [hidden, heads head_dim] after the attention."""
        heads = matrix.unflatten(1, (self.heads, self.head_dim))
        wide = F.pad(heads, (0, self.head_wide - self.head_dim)).flatten(1)
        return wide, bias, False, None, 0, self.head_dim

    def down(self, matrix: Tensor, bias: Tensor | None) -> tuple[Any, ...]:
        """Of the projection [hidden, inner] after the feed-forward's product."""
        return F.pad(matrix, (0, self.inner_wide - self.inner)), bias, True

    def _from_hidden(self, matrix: Tensor) -> Tensor:
        return F.pad(matrix, (0, self.wide - self.hidden)) if matrix.shape[1] == self.hidden else matrix

    def network(self, layers: int, eps: float) -> Sizes:
        """Return the sizes of a compiled network of ``layers`` layers. eps: of its norms."""
        return Sizes(
            hidden=self.wide,
            layers=layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_wide,
            inner=self.inner_wide,
            floor=self.hidden * eps,
            head_floor=self.head_dim * eps,
            scale=self.head_dim**-0.5,
        )

    def norm(self, weight: Tensor) -> np.ndarray:
        """Return the weights [hidden] of a norm as the compiled pass reads them."""
        return self._scaled(weight, self.wide)

    def head_norm(self, norm: Any) -> np.ndarray | None:
        """Return the weights of a norm of queries or keys as the compiled pass reads them; None for None."""
        return None if norm is None else self._scaled(norm.weight, self.head_wide)

    def _scaled(self, weight: Tensor, wide: int) -> np.ndarray:
        scaled = F.pad(weight * weight.shape[0] ** 0.5, (0, wide - weight.shape[0]))
        return scaled.float().contiguous().numpy()

    def rotations(self, rotation: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return the rotary tables (cos, sin), [positions, head_wide], of complex rotations [positions, 1,
        head_dim / 2]."""
        pairs = rotation[:, 0].to(torch.complex64)
        cos = pairs.real.repeat_interleave(2, 1)
        sin = torch.stack([-pairs.imag, pairs.imag], 2).flatten(1)
        wide = (0, self.head_wide - self.head_dim)
        return F.pad(cos, wide).contiguous().numpy(), F.pad(sin, wide).contiguous().numpy()

    def new_slots(self, layers: int, slots: int) -> Tensor:
        """Allocate a KV cache, [layers, 2, kv_heads, slots, head_dim]. Heads are padded in memory."""
        shape = (layers, 2, self.kv_heads, slots, self.head_wide)
        if self.head_wide == self.head_dim:
            return torch.empty(shape)
        return torch.zeros(shape)[..., : self.head_dim]
