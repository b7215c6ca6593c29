"""Attention whose sums come out the same in every order: a row's result does not depend on which rows are scored beside it, nor on the
slots in which the keys lie that it sees.

32-bit floats hold whole numbers up to 2^24. So what is added up is first rounded to so coarse a grid that no sum of it can be rounded:
queries and keys to eight bits and a sign under the largest of their head, values to twelve under a bound of their layer, exponentials
to 2^-13 and weights to 2^-11. Everything else is done number by number, where no order is.
"""
import math
from typing import Optional

import torch
from torch import Tensor, nn

SLOTS = 2048  # seen by a row, at most
HEAD_DIM = 256  # numbers of a head, at most
VALUE_BITS = 12
TO_ONE = 1.5 * 2.0**23  # a number plus this, less it again, is rounded to a whole one; times a step, to a multiple of that


class Exact(nn.Module):
    """Attention of one layer of ``heads`` heads of ``head_dim`` numbers; none of its values is larger than ``bound``."""

    def __init__(self, bound: float, heads: int, head_dim: int):
        super().__init__()
        step = 2.0 ** (math.ceil(math.log2(max(bound, 1e-30))) - VALUE_BITS)
        self.most, self.of_values = step * 2.0**VALUE_BITS, step * TO_ONE
        self.heads, self.scale = heads, math.log2(math.e) * head_dim**-0.5  # powers of two are less work than powers of e
        self.of_head = 2.0**16  # times the largest in it: there 32-bit floats of 24 bits lie so far apart that 8 are left
        self.highest, self.whole = 13.0, 2.0**11

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
        scores = torch.bmm(q, keys) if mask is None else torch.baddbmm(mask, q, keys)
        e = scores.sub_(scores.amax([-1], True).sub_(self.highest)).exp2_().round_()  # whole numbers up to 2^13
        e.mul_(e.sum([-1], True).reciprocal_().mul_(self.whole)).round_()
        return torch.bmm(e, values).div_(self.whole)
