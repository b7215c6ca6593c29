"""Views of a target: the same weights over the same committed rows, run otherwise, so that a target drafts for itself."""
from __future__ import annotations

from contextlib import contextmanager
from typing import Sequence

import torch
from torch import Tensor

from ..core import Scores, common
from .llama import LlamaTarget
from .rows import Rows
from .side_by_side import groups_of


class Skipping(LlamaTarget):
    """A target without some sublayers (SWIFT 2410.06916, Draft & Verify 2309.08168): a draft model that needs no weights.

    It reads the committed keys and values of the whole target and keeps its own scratch.
    """

    capabilities = frozenset({"tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head"})

    def __init__(self, target: LlamaTarget, sublayers: Sequence[int]):
        self.skip = frozenset(sublayers)
        alien = [s for s in self.skip if not 0 <= s < 2 * target.layers]
        if alien:
            raise ValueError(f"{target.name} has no sublayer {alien[0]}")
        self._whole, self._borrowed = target, 0
        super().__init__(target.model)

    def sync(self, tokens: Sequence[int]) -> Scores:
        """As any target's; rows that the whole target has committed are taken from it, the rest is fed without the sublayers."""
        tokens, whole = list(tokens), self._whole
        self._check(tokens)
        mine = min(self._borrowed, common(self.seen, tokens[:-1]))
        theirs = common(whole.seen, tokens[:-1])
        if theirs > mine:
            self._reserve(theirs)
            with torch.inference_mode():
                self._cache[:, :, :, mine:theirs] = whole.lined_up()[:, :, :, mine:theirs]
            self.seen = tokens[:theirs]
            self._drop()
        self._borrowed = max(mine, theirs)
        return super().sync(tokens)

    @contextmanager
    def timed(self):
        """A view's forwards are its target's time too: who adds up ``busy`` knows the target alone."""
        before = self.busy
        try:
            with super().timed():
                yield
        finally:
            self._whole.busy += self.busy - before

    def close(self) -> None:
        super().close()
        self._borrowed = 0


class Fuzzy(Skipping):
    """A view of a target with groups of layers side by side. The root's row is exact, the nodes' are fuzzy.

    Keys and values of what is committed are the whole target's, made in order: the fuzzy ones live for one round (calibration).
    """

    capabilities = frozenset({"tree", "rewind", "embed", "head"})

    def __init__(self, target: LlamaTarget, size: int):
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
