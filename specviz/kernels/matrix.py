"""Int8 matrices in the layout of the compiled products."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from . import llama_pass as kernel
from .memory import Arena, address, aligned, round_up
from .vector import TILE_OUTPUTS, WEIGHT_OFFSET, WIDE
from .workers import MOST_THREADS, workspace

SMALL = 2**20  # products, from which waking a second thread pays
STEP = 16  # inputs of a matrix are padded to a multiple of this
LARGEST_ROW = 2**15  # inputs of a matrix whose integer sums fit 32 bits


@lru_cache(maxsize=1)
def _products() -> dict[int, int]:
    """Return the addresses of the product functions, by columns of 16 outputs."""
    return {2: kernel.product_2.address, 3: kernel.product_3.address, 4: kernel.product_4.address}


def columns_of(outputs: int) -> int:
    """Return how many vectors of 16 outputs a block has: so many that the blocks divide evenly among two
    threads, if any do."""
    vectors = outputs // 16
    for even in (2, 1):
        for columns in (3, 4, 2):
            if vectors % (columns * even) == 0:
                return columns
    return 2


class Int8Matrix:
    """A matrix W [out, in] in int8 with one scale per output, packed for the compiled products; y = x W^T +
    b with x quantised per row.

    values int8 [out, in]; scales float32 [out], of integer products; bias float32 [out] or None; fields:
    int64 that compiled functions read; inputs, outputs: padded sizes. Padded outputs are 0. order: of the
    outputs, where a kernel needs another one, -1 for a padded one. columns: of a block, if given. arena:
    where the packed weights are kept.
    """

    def __init__(
        self,
        values: np.ndarray,
        scales: np.ndarray,
        bias: np.ndarray | None = None,
        order: np.ndarray | None = None,
        columns: int = 0,
        arena: Arena | None = None,
    ):
        out, wide = values.shape
        if wide > LARGEST_ROW:
            raise NotImplementedError(f"{wide} products in a row are more than an int32 sum holds")
        self.rows, self.width = out, wide
        self.inputs = round_up(wide, STEP)
        order = np.arange(out) if order is None else order
        self.columns = columns or columns_of(round_up(len(order), 32))
        self.outputs = round_up(len(order), 16 * self.columns)
        spread = np.zeros((self.outputs, self.inputs), np.int8)
        real = order >= 0  # -1: a padded output
        spread[: len(order), :wide][real] = values[order[real]]
        blocks = self.outputs // (16 * self.columns)
        group = 16 * self.columns if WIDE else TILE_OUTPUTS  # outputs whose weights lie side by side
        packed = spread.reshape(self.outputs // group, group, self.inputs // 4, 4).transpose(0, 2, 1, 3)
        self.packed = (arena or Arena(0)).take(spread.size)
        np.add(packed.view(np.uint8), np.uint8(WEIGHT_OFFSET), out=self.packed.reshape(packed.shape))
        self.scales = self._spread(scales, order, real)
        self.bias = None if bias is None else self._spread(bias, order, real)
        self.fields = np.array(
            [
                address(self.packed),
                address(self.scales),
                0 if self.bias is None else address(self.bias),
                self.columns,
                blocks,
                _products()[self.columns],
            ],
            np.int64,
        )

    def _spread(self, values: np.ndarray, order: np.ndarray, real: np.ndarray) -> np.ndarray:
        spread = aligned(self.outputs, np.float32)
        spread[:] = 0
        spread[: len(order)][real] = values[order[real]]
        return spread

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights, which every pass reads."""
        return self.packed.nbytes

    def multiply(self, x: np.ndarray, out: np.ndarray, fine: bool = False) -> None:
        """Store x W^T + b, x [rows, inputs] float32, in out [rows, outputs]. Both are C-contiguous. fine:
        quantise x to 16 bits."""
        n = len(x)
        if not n:
            return
        with workspace(n, self.inputs) as (space, threads):
            threads.call(
                kernel.run_linear,
                address(self.fields),
                address(x),
                self.inputs,
                n,
                address(out),
                self.outputs,
                int(fine),
                space=space,
                most=1 if n * self.nbytes < SMALL else MOST_THREADS,
            )
