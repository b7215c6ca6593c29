"""Layers that run side by side, approximately (EasySpec, Wu et al. 2502.02493): a draft made of a model's own weights.

The first and the last layer run as ever. Between them layers go in groups; the attentions of a group all read what entered the
group, so they need not wait for each other, and the feed-forwards follow in order.
"""
from __future__ import annotations

from typing import Sequence

from torch import Tensor

from ..core import Scores
from .fast import FastTarget, Skipping
from .rows import Rows


def groups_of(layers: int, size: int) -> list[list[int]]:
    """Layers that run together, in order: the first and the last alone, those between in groups of ``size``."""
    middle = list(range(1, layers - 1))
    grouped = [middle[i:i + size] for i in range(0, len(middle), size)]
    return [[0], *grouped, [layers - 1]] if layers > 1 else [[0]]


class Fuzzy(Skipping):
    """A view of a target with groups of layers side by side. The root's row is exact, the nodes' are fuzzy.

    Keys and values of what is committed are the whole target's, made in order: the fuzzy ones live for one round (calibration).
    """

    provides = frozenset({"tree", "rewind", "embed", "head"})

    def __init__(self, target: FastTarget, size: int):
        self.groups = groups_of(target.layers, size)
        super().__init__(target, ())

    def sync(self, tokens: Sequence[int]) -> Scores:
        self._whole.sync(tokens)
        self._whole.settle()
        return super().sync(tokens)

    def _layers(self, rows: Rows, x: Tensor, first: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        if not rows.lo:
            return super()._layers(rows, x, first, end)
        model, at, turn, mask = self.model, rows.past + rows.lo, self._turn(rows), self._mask(rows)
        for group in self.groups:
            entered = x
            for i in group:
                seen = model.attend(model.blocks[i], entered, turn, self._cache[i], at, mask)
                x = model.transform(model.blocks[i], seen if x is entered else x + (seen - entered))
        return x, {}
