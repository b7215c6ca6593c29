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
    """Attention of one layer; none of its values is larger than ``bound``."""

    def __init__(self, bound: float):
        super().__init__()
        step = 2.0 ** (math.ceil(math.log2(max(bound, 1e-30))) - VALUE_BITS)
        self.most, self.of_values = step * 2.0**VALUE_BITS, step * TO_ONE
        self.of_scores = math.log2(math.e)  # powers of two are less work than powers of e
        self.of_head = 2.0**16  # of the largest in it, where 32-bit floats of 24 bits lie so apart that 8 are left
        self.of_exponentials, self.of_weights = TO_ONE * 2.0**-13, TO_ONE * 2.0**-11

    def forward(self, qkv: Tensor, first: int) -> None:
        """Round queries, keys and, from head ``first`` on, values [rows, heads, head_dim] in place."""
        heads, values = qkv[:, :first], qkv[:, first:]
        grid = heads.abs().amax([-1], True).mul_(self.of_head)
        heads.add_(grid).sub_(grid)
        values.clamp_(-self.most, self.most).add_(self.of_values).sub_(self.of_values)

    def look(self, q: Tensor, keys: Tensor, values: Tensor, mask: Optional[Tensor]) -> Tensor:
        """softmax(q k^T / sqrt(head_dim) + mask) v of what was rounded: q [heads, rows, head_dim], keys and values [heads, slots,
        head_dim], mask [rows, slots]; [heads, rows, head_dim]."""
        scores = torch.bmm(q, keys.transpose(1, 2)).mul_(self.of_scores * float(q.shape[2]) ** -0.5)
        if mask is not None:
            scores.add_(mask)
        e = scores.sub_(scores.amax([-1], True)).exp2_().add_(self.of_exponentials).sub_(self.of_exponentials)
        return torch.bmm(e.div_(e.sum([-1], True)).add_(self.of_weights).sub_(self.of_weights), values)
