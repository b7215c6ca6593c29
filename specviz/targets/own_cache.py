"""What a target keeps of its own keys and values when it drafts for itself: the latest ones (MagicDec, Chen et al. 2408.11049, after
StreamingLLM), pieces that look relevant (TriForce, Sun et al. 2404.11912), or all of them rounded to a few bits (QuantSpec, Tiwari
et al. 2502.10424). The check reads everything, so the text stays exact.

A ``Keep`` is asked with the committed rows [layers, 2, heads, rows, width], keys first, and the number of own slots that it said were
settled the last time; it gives what the slots behind these hold, and how many are settled now.
"""
from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

Keep = Callable[[Tensor, int], tuple[Tensor, int]]


class Latest:
    """The first ``sinks`` rows and the last ``window``."""

    def __init__(self, sinks: int, window: int):
        self.sinks, self.window = sinks, window

    def __call__(self, rows: Tensor, settled: int) -> tuple[Tensor, int]:
        n = rows.shape[3]
        if n <= self.sinks + self.window:
            return rows, 0
        return torch.cat([rows[:, :, :, :self.sinks], rows[:, :, :, n - self.window:]], 3), 0


class Relevant:
    """The last ``window`` rows, and up to ``budget`` rows in pieces of ``size``: of each layer and head those whose mean key is most
    like the key of the last row."""

    def __init__(self, size: int, budget: int, window: int):
        self.size, self.budget, self.window = size, budget, max(1, window)

    def __call__(self, rows: Tensor, settled: int) -> tuple[Tensor, int]:
        layers, _, heads, n, width = rows.shape
        pieces, count = max(0, n - self.window) // self.size, self.budget // self.size
        if pieces <= count:
            return rows, 0
        means = rows[:, 0, :, :pieces * self.size].unflatten(2, (pieces, self.size)).mean(3)  # [layers, heads, pieces, width]
        alike = (means @ rows[:, 0, :, -1, :, None]).squeeze(-1)
        best = alike.topk(count).indices.sort().values
        where = (best[..., None] * self.size + torch.arange(self.size, device=rows.device)).flatten(2)  # [layers, heads, rows kept]
        kept = rows.gather(3, where[:, None, :, :, None].expand(layers, 2, heads, where.shape[2], width))
        return torch.cat([kept, rows[:, :, :, pieces * self.size:]], 3), 0


class Rounded:
    """All rows; those before the last ``window`` in whole groups of ``group`` rows are rounded to ``bits`` bits, keys by channel and
    values by row, each between the smallest and the largest number there. A group is rounded once."""

    def __init__(self, bits: int, group: int, window: int):
        self.bits, self.group, self.window = bits, group, window

    def __call__(self, rows: Tensor, settled: int) -> tuple[Tensor, int]:
        done = max(settled, max(0, rows.shape[3] - self.window) // self.group * self.group)
        if done == settled:
            return rows[:, :, :, settled:], settled
        old = rows[:, :, :, settled:done].unflatten(3, (-1, self.group))  # [layers, 2, heads, groups, group, width]
        old = torch.stack([self.round(old[:, 0], -2), self.round(old[:, 1], -1)], 1).flatten(3, 4)
        return torch.cat([old, rows[:, :, :, done:]], 3), done

    def round(self, x: Tensor, along: int) -> Tensor:
        """x on the grid of 2**bits steps between its smallest and its largest number along an axis."""
        low, high = x.amin(along, keepdim=True), x.amax(along, keepdim=True)
        step = ((high - low) / (2**self.bits - 1)).clamp(min=torch.finfo(x.dtype).tiny)
        return ((x - low) / step).round() * step + low
