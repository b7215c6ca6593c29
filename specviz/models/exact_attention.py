"""Attention with exact sums: a row's result is bit-identical regardless of batch composition and of the
slots its keys lie in.

float32 holds integers up to 2^24 exactly. All summands are first rounded to a grid so coarse that no sum is
rounded:

| summand | grid |
|---|---|
| queries and keys | 8 bits and a sign below the largest of their head |
| values | 12 bits below a bound of their layer |
| exponentials | 2^-13 |
| attention weights | 2^-11 |

All other operations are elementwise, so they have no summation order; exp2 runs over whole vectors
(models/whole_vectors.py).
"""

import math
import time
from functools import lru_cache

import torch
from torch import Tensor, nn

from .whole_vectors import VECTORS, exp2_

SLOTS = 2048  # largest number of slots a row may attend to
HEAD_DIM = 256  # largest head dimension
VALUE_BITS = 12
ROUNDS = 50  # repetitions of a timing
TO_ONE = (
    1.5 * 2.0**23
)  # adding and subtracting this rounds to an integer; multiplied by a step, to a multiple of the step


class ExactAttention(nn.Module):
    """Attention of one layer with exact sums, an nn.Module. bound: the largest magnitude of an entry of a
    value vector; heads: number of query heads. Call it to round a layer's queries, keys and values, then
    ``attention``."""

    def __init__(self, bound: float, heads: int, head_dim: int):
        super().__init__()
        step = 2.0 ** (math.ceil(math.log2(max(bound, 1e-30))) - VALUE_BITS)
        self.most, self.heads = step * 2.0**VALUE_BITS, heads
        # tensors, because torch converts a Python number on every call
        self.of_values = torch.tensor(step * TO_ONE)
        self.highest = torch.tensor(13.0)
        self.whole = torch.tensor(2.0**11)
        self.scale = torch.tensor(math.log2(math.e) * head_dim**-0.5)  # exp2 is cheaper than exp
        self.apart, self.vectors = _mask_apart(torch.get_num_threads()), VECTORS
        self.of_head = torch.tensor(
            2.0**16
        )  # times the largest entry of a head: added and subtracted, it leaves 8 of 24 bits

    def forward(self, qkv: Tensor, first: int) -> None:
        """Round queries, keys and values in place, and scale the queries. qkv [rows, heads, head_dim], with
        the values from head ``first`` on."""
        heads, values = qkv[:, :first], qkv[:, first:]
        heads[:, : self.heads].mul_(self.scale)
        grid = heads.abs().amax([-1], True).mul_(self.of_head)
        heads.add_(grid).sub_(grid)
        values.clamp_(-self.most, self.most).add_(self.of_values).sub_(self.of_values)

    def attention(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return softmax(q k^T / sqrt(head_dim) + mask) v, [heads, rows, head_dim], of rounded inputs: q
        [heads, rows, head_dim], keys and values [heads, slots, head_dim], mask [rows, slots] of 0 and
        -inf."""
        keys = keys.transpose(1, 2)
        count = q.shape[0] * q.shape[1] * keys.shape[2]
        flat = q.new_empty(
            [(count + self.vectors - 1) // self.vectors * self.vectors]
        )  # whole vectors for exp2
        scores = flat.narrow(0, 0, count).view(q.shape[0], q.shape[1], keys.shape[2])
        if mask is None:
            torch.bmm(q, keys, out=scores)
        elif self.apart:
            torch.bmm(q, keys, out=scores).add_(mask)
        else:
            torch.baddbmm(mask, q, keys, out=scores)
        scores.sub_(scores.amax([-1], True).sub_(self.highest))
        exp2_(flat)
        e = scores.round_()  # integers up to 2^13
        e.mul_(e.sum([-1], True).reciprocal_().mul_(self.whole)).round_()
        return torch.bmm(e, values).div_(self.whole)


@lru_cache(maxsize=4)
def _mask_apart(threads: int) -> bool:
    """Measure whether adding the mask after the product is faster than baddbmm. The results are identical."""
    q = torch.ones(4, 15, 64)
    keys = torch.ones(2, 4, 600, 64)[0, :, :256].transpose(1, 2)
    mask = torch.zeros(15, 256)
    ways = {True: lambda: torch.bmm(q, keys).add_(mask), False: lambda: torch.baddbmm(mask, q, keys)}
    least = dict.fromkeys(ways, math.inf)
    for _ in range(ROUNDS):
        for apart, way in ways.items():
            began = time.perf_counter()
            way()
            least[apart] = min(least[apart], time.perf_counter() - began)
    return least[True] < least[False]
