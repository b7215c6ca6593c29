"""Several mixers over the same input, whose outputs are added: Falcon-H1's attention beside Mamba-2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from .tree_rows import Mixer, RowPositions


@dataclass(frozen=True)
class PartsOf:
    """States, or values of draft rows, of several mixers, in their order."""

    parts: tuple[Any, ...]

    def first(self, count: int) -> Self:
        """Return the first ``count`` rows of each part."""
        return type(self)(tuple(part.first(count) for part in self.parts))


class ParallelMixer(Mixer):
    """Several mixers as one Mixer (tree_rows.py): each reads the same rows, and their outputs are added."""

    def __init__(self, *mixers: Mixer):
        self.mixers, self.kernel = mixers, max(mixer.kernel for mixer in mixers)

    def new_state(self) -> PartsOf:
        """Return the states of all mixers before any text."""
        return PartsOf(tuple(mixer.new_state() for mixer in self.mixers))

    def advance(self, state: PartsOf, rows: PartsOf, path: list[int]) -> PartsOf:
        """Return the states of all mixers after the accepted rows ``path``."""
        return PartsOf(
            tuple(
                mixer.advance(own, part, path)
                for mixer, own, part in zip(self.mixers, state.parts, rows.parts)
            )
        )

    def run(
        self, x: Tensor, state: PartsOf, before: PartsOf | None, place: RowPositions
    ) -> tuple[Tensor, PartsOf]:
        """Return the sum of the outputs [n - lo, hidden] of draft rows lo..n, x [n - lo, hidden], and the
        values of all draft rows."""
        earlier = before.parts if before else (None,) * len(self.mixers)
        outputs, rows = zip(
            *(mixer.run(x, own, part, place) for mixer, own, part in zip(self.mixers, state.parts, earlier))
        )
        return torch.stack(outputs).sum(0), PartsOf(rows)

    def survival(self, rows: PartsOf) -> list[Tensor]:
        """Return the ``survival`` of each mixer whose state decays, in order."""
        return [share for mixer, part in zip(self.mixers, rows.parts) for share in mixer.survival(part)]
