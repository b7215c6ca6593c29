"""Which KV cache entries a target drafts with: attention sinks and a window (MagicDec, Chen et al.
2408.11049, after StreamingLLM), retrieved chunks (TriForce, Sun et al. 2404.11912), or all entries
quantised (QuantSpec, Tiwari et al. 2502.10424). Verification reads the full cache, so the output stays
exact.

A ``CacheSelection`` is a function of the committed rows [layers, 2, heads, rows, width] (keys first) and of
the number of its leading slots that are final, as it returned from the last call. It returns the content of
the slots after these, and the number of slots that are final now.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CacheSelection = Callable[[Tensor, int], tuple[Tensor, int]]


class SinksAndWindow:
    """CacheSelection of the first ``sinks`` positions and the last ``window`` (StreamingLLM, MagicDec)."""

    def __init__(self, sinks: int, window: int):
        self.sinks, self.window = sinks, window

    def __call__(self, rows: Tensor, finished: int) -> tuple[Tensor, int]:
        n = rows.shape[3]
        if n <= self.sinks + self.window:
            return rows, 0
        return torch.cat([rows[:, :, :, : self.sinks], rows[:, :, :, n - self.window :]], 3), 0


class RelevantChunks:
    """CacheSelection of the last ``window`` positions and of up to ``budget`` earlier ones, in chunks of
    ``size`` (TriForce). For each layer and head the chunks are those whose mean key has the largest dot
    product with the last position's key."""

    def __init__(self, size: int, budget: int, window: int):
        self.size = size
        self.budget = budget
        self.window = max(1, window)

    def __call__(self, rows: Tensor, finished: int) -> tuple[Tensor, int]:
        layers, _, heads, n, width = rows.shape
        pieces, count = max(0, n - self.window) // self.size, self.budget // self.size
        if pieces <= count:
            return rows, 0
        means = (
            rows[:, 0, :, : pieces * self.size].unflatten(2, (pieces, self.size)).mean(3)
        )  # [layers, heads, pieces, width]
        alike = (means @ rows[:, 0, :, -1, :, None]).squeeze(-1)
        best = alike.topk(count).indices.sort().values
        where = (best[..., None] * self.size + torch.arange(self.size, device=rows.device)).flatten(
            2
        )  # [layers, heads, rows kept]
        kept = rows.gather(3, where[:, None, :, :, None].expand(layers, 2, heads, where.shape[2], width))
        return torch.cat([kept, rows[:, :, :, pieces * self.size :]], 3), 0


class RoundedCache:
    """CacheSelection of all positions, quantised to ``bits`` bits (QuantSpec): whole groups of ``group``
    positions before the last ``window``, between their minimum and maximum, keys per channel and values per
    position. A group is quantised once."""

    def __init__(self, bits: int, group: int, window: int):
        self.bits = bits
        self.group = group
        self.window = window

    def __call__(self, rows: Tensor, finished: int) -> tuple[Tensor, int]:
        done = max(finished, max(0, rows.shape[3] - self.window) // self.group * self.group)
        if done == finished:
            return rows[:, :, :, finished:], finished
        old = rows[:, :, :, finished:done].unflatten(
            3, (-1, self.group)
        )  # [layers, 2, heads, groups, group, width]
        old = torch.stack([self.round(old[:, 0], -2), self.round(old[:, 1], -1)], 1).flatten(3, 4)
        return torch.cat([old, rows[:, :, :, done:]], 3), done

    def round(self, x: Tensor, along: int) -> Tensor:
        """Return x rounded to 2**bits evenly spaced values between its minimum and maximum along the axis
        ``along``."""
        low, high = x.amin(along, keepdim=True), x.amax(along, keepdim=True)
        step = ((high - low) / (2**self.bits - 1)).clamp(min=torch.finfo(x.dtype).tiny)
        return ((x - low) / step).round() * step + low
