"""Attention whose sums come out the same in every order: a row's result does not depend on which rows are scored beside it, nor on the
slots in which the keys lie that it sees.

32-bit floats hold whole numbers up to 2^24. So what is added up is first rounded to so coarse a grid that no sum of it can be rounded:
queries and keys to eight bits and a sign under the largest of their head, values to twelve under a bound of their layer, exponentials
to 2^-13 and weights to 2^-11. Everything else is done number by number, where no order is.
"""
import math
import time
from functools import lru_cache
from typing import Optional

import torch
from torch import Tensor, nn

SLOTS = 2048  # seen by a row, at most
HEAD_DIM = 256  # numbers of a head, at most
VALUE_BITS = 12
ROUNDS = 50  # of measuring
TO_ONE = 1.5 * 2.0**23  # a number plus this, less it again, is rounded to a whole one; times a step, to a multiple of that


class Exact(nn.Module):
    """Attention of one layer of ``heads`` heads of ``head_dim`` numbers; none of its values is larger than ``bound``."""

    def __init__(self, bound: float, heads: int, head_dim: int):
        super().__init__()
        step = 2.0 ** (math.ceil(math.log2(max(bound, 1e-30))) - VALUE_BITS)
        self.most, self.heads = step * 2.0**VALUE_BITS, heads
        # numbers as tensors: torch makes one of a plain number at every call
        self.of_values, self.highest, self.whole = torch.tensor(step * TO_ONE), torch.tensor(13.0), torch.tensor(2.0**11)
        self.scale = torch.tensor(math.log2(math.e) * head_dim**-0.5)  # powers of two are less work than powers of e
        self.apart = _mask_apart(torch.get_num_threads())
        self.of_head = torch.tensor(2.0**16)  # times the largest in it: there 32-bit floats of 24 bits lie so far apart that 8 are left

    def forward(self, qkv: Tensor, first: int) -> None:
        """Scale queries, and round them, keys and, from head ``first`` on, values [rows, heads, head_dim] in place."""
        heads, values = qkv[:, :first], qkv[:, first:]
        heads[:, :self.heads].mul_(self.scale)
        grid = heads.abs().amax([-1], True).mul_(self.of_head)
        heads.add_(grid).sub_(grid)
        values.clamp_(-self.most, self.most).add_(self.of_values).sub_(self.of_values)

    def look(self, q: Tensor, keys: Tensor, values: Tensor, mask: Optional[Tensor]) -> Tensor:
        """softmax(q k^T / sqrt(head_dim) + mask) v of what was rounded: q [heads, rows, head_dim], keys and values [heads, slots,
        head_dim], mask [rows, slots] of 0 and -inf; [heads, rows, head_dim]."""
        keys = keys.transpose(1, 2)
        if mask is None:
            scores = torch.bmm(q, keys)
        elif self.apart:
            scores = torch.bmm(q, keys).add_(mask)
        else:
            scores = torch.baddbmm(mask, q, keys)
        e = scores.sub_(scores.amax([-1], True).sub_(self.highest)).exp2_().round_()  # whole numbers up to 2^13
        e.mul_(e.sum([-1], True).reciprocal_().mul_(self.whole)).round_()
        return torch.bmm(e, values).div_(self.whole)


@lru_cache(maxsize=4)
def _mask_apart(threads: int) -> bool:
    """Whether a mask is added quicker behind a product than within it: which it is depends on the processor and its threads, and the
    sums are the same."""
    q, keys, mask = torch.ones(4, 15, 64), torch.ones(2, 4, 600, 64)[0, :, :256].transpose(1, 2), torch.zeros(15, 256)
    ways = {True: lambda: torch.bmm(q, keys).add_(mask), False: lambda: torch.baddbmm(mask, q, keys)}
    least = dict.fromkeys(ways, math.inf)
    for _ in range(ROUNDS):
        for apart, way in ways.items():
            began = time.perf_counter()
            way()
            least[apart] = min(least[apart], time.perf_counter() - began)
    return least[True] < least[False]
