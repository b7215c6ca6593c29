"""Rows of a draft tree as a mixer with a state sees them: where each row stands, and what it leaves for the state.

A mixer (mamba2.py, linear_attention.py, causal_mixer.py) has three methods. ``new_state()`` returns its state before any text.
``run(x, state, before, place)`` returns its outputs for rows lo..n of a tree and what they leave; it reads the state and never writes
it. ``advance(state, rows, path)`` returns the state after the rows of an accepted path.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowPositions:
    """Where rows lo..n of a tree stand. past: committed tokens; depths [n]: of all rows, 0 for the root; sees [n - lo, n]: ancestors of
    each row and itself; taps [n - lo, kernel]: index of each row's last inputs, itself last, over ``kernel - 1`` committed rows followed
    by all rows of the tree."""

    past: int
    depths: Tensor
    sees: Tensor
    taps: Tensor

    @property
    def new_depths(self) -> Tensor:
        return self.depths[len(self.depths) - len(self.sees):]

    def taps_of(self, kernel: int) -> Tensor:
        """Return the taps of a shorter kernel, [n - lo, kernel], over ``kernel - 1`` committed rows followed by all rows."""
        longer = self.taps.shape[1] - kernel
        return self.taps[:, longer:] - longer


class TreeRows:
    """Base of dataclasses whose fields are tensors with a row for each row of a tree."""

    def first(self, count: int) -> Self:
        return type(self)(*(part[:count] for part in vars(self).values()))

    def then(self, more: Self) -> Self:
        return type(self)(*(torch.cat(pair) for pair in zip(vars(self).values(), vars(more).values())))

    def after(self, before: Self | None) -> Self:
        return self if before is None else before.then(self)


class Mixer(Protocol):
    """A layer part with a state. kernel: inputs that a row's convolution reads, 1 without one."""

    kernel: int

    def new_state(self) -> Any: ...

    def run(self, x: Tensor, state: Any, before: Any, place: RowPositions) -> tuple[Tensor, Any]: ...

    def advance(self, state: Any, rows: Any, path: list[int]) -> Any: ...
