"""Elementwise functions whose result for an element does not depend on its position in the tensor.

torch computes exp2, SiLU and complex products with vector instructions, and the rest at the end of a chunk
with scalar code that may round differently. Chunks depend on the length of the tensor and, from 32,768
elements on, on the number of threads. Here a chunk is either padded to whole vectors or always ends at the
same element of a row.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

VECTORS = 32  # floats in two vectors of 512 bits: the longest step of a vector loop
PIECE = 2**14  # elements of a piece: fewer than torch divides among threads


def exp2_(flat: Tensor, piece: int = PIECE) -> Tensor:
    """Apply exp2 in place to a contiguous 1-D tensor whose length is a multiple of VECTORS, ``piece``
    elements at a time; return it."""
    if flat.device.type != "cpu" or flat.shape[0] <= piece:
        return flat.exp2_()
    for part in flat.split(piece):
        part.exp2_()
    return flat


def silu(x: Tensor, piece: int = PIECE) -> Tensor:
    """Return SiLU of x [rows, width], computed a few rows (about ``piece`` elements) at a time."""
    rows = max(1, piece // x.shape[1])
    if x.device.type != "cpu" or x.shape[0] <= rows:
        return F.silu(x)
    return torch.cat([F.silu(part) for part in x.split(rows)])


def rotate_(x: Tensor, rotation: Tensor, piece: int = PIECE) -> None:
    """Multiply pairs of x [rows, heads, head_dim] in place by the complex rotation [rows, 1, head_dim / 2],
    a few rows at a time."""
    n = x.shape[0]
    heads = x.shape[1]
    width = x.shape[2]
    pairs = torch.view_as_complex(x.view(n, heads, width // 2, 2))
    rows = max(1, piece // (heads * width // 2))
    if x.device.type != "cpu" or n <= rows:
        pairs.mul_(rotation)
    else:
        for first in range(0, n, rows):
            count = min(rows, n - first)
            pairs.narrow(0, first, count).mul_(rotation.narrow(0, first, count))
