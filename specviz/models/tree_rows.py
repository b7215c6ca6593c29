"""What a layer with a recurrent state (a mixer) needs to run over the rows of a draft tree.

A mixer (attention_mixer.py, mamba2.py, linear_attention.py, short_convolution.py, parallel_mixer.py) has
four methods. ``new_state()`` returns its state before any text. ``run(x, state, before, place)`` returns
its outputs for draft rows lo..n and values of these rows that the state needs; it reads the state and never
writes it. ``advance(state, rows, path)`` returns the state after the rows of an accepted path.
``survival(rows)`` says how much of the committed state each row still reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowPositions:
    """Positions of draft rows lo..n, and what each of them sees. past: number of committed tokens; depths
    [n]: of all draft rows, 0 for the root; sees [n - lo, n], bool: each row's ancestors and itself; taps [n
    - lo, kernel]: indices of each row's convolution inputs, itself last, over ``kernel - 1`` committed rows
    followed by all draft rows."""

    past: int
    depths: Tensor
    sees: Tensor
    taps: Tensor

    @property
    def new_depths(self) -> Tensor:
        """Depths [n - lo] of the rows of this pass."""
        return self.depths[len(self.depths) - len(self.sees) :]

    def taps_of(self, kernel: int) -> Tensor:
        """Return the indices of each row's inputs for a shorter convolution, [n - lo, kernel], over
        ``kernel - 1`` committed rows followed by all draft rows."""
        longer = self.taps.shape[1] - kernel
        return self.taps[:, longer:] - longer


class TreeRows:
    """Base of dataclasses whose fields are tensors with one row for each draft row."""

    def first(self, count: int) -> Self:
        """Return the first ``count`` rows."""
        return type(self)(*(part[:count] for part in vars(self).values()))

    def then(self, more: Self) -> Self:
        """Return these rows followed by ``more``."""
        return type(self)(*(torch.cat(pair) for pair in zip(vars(self).values(), vars(more).values())))

    def after(self, before: Self | None) -> Self:
        """Return ``before`` followed by these rows; these rows alone if ``before`` is None."""
        return self if before is None else before.then(self)


def tensors_of(state: Any) -> Iterator[Tensor]:
    """Yield the tensors of a mixer's state, those of its parts included."""
    for part in vars(state).values():
        if isinstance(part, Tensor):
            yield part
        else:
            for one in part:
                yield from tensors_of(one)


class Mixer(Protocol):
    """Protocol of the part of a layer that mixes positions (attention, Mamba-2, convolution), with a state.
    kernel: number of inputs of a row's convolution, 1 without one. The methods are described at the top of
    this module."""

    kernel: int

    def new_state(self) -> Any:
        """Return the state before any text."""
        ...

    def run(self, x: Tensor, state: Any, before: Any, place: RowPositions) -> tuple[Tensor, Any]:
        """Return (outputs [n - lo, hidden] of draft rows lo..n; what the state needs of all draft rows).

        before: the same for rows before lo.
        """
        ...

    def advance(self, state: Any, rows: Any, path: list[int]) -> Any:
        """Return the state after the accepted rows ``path``."""
        ...

    def survival(self, rows: Any) -> list[Tensor]:
        """Return a list of one tensor [rows] if the state decays: the share of the committed state that
        each row's decay leaves, averaged over heads; an empty list otherwise. A mixer of several gives one
        for each that decays."""
        return []
