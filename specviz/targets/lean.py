"""A target as its own draft model: the same weights over a part of its keys and values, or over rounded ones (own_cache.py)."""
from __future__ import annotations

from dataclasses import replace
from typing import Sequence

import torch
from torch import Tensor

from ..core import Scores, common
from .base import CachedTarget
from .llama import LlamaTarget
from .own_cache import Keep
from .rows import Rows
from .views import Skipping


class Lean(Skipping):
    """A view whose slots hold what ``keep`` leaves of the committed rows, with its own scratch behind them. Keys are kept as they
    were rotated, so positions stay true: a row at position p lies in slot p - offset.

    kept: slots taken from the whole target.
    """

    capabilities = frozenset({"tree", "rewind", "embed", "head"})

    def __init__(self, target: LlamaTarget, keep: Keep):
        self.keep, self.offset, self.kept, self._settled = keep, 0, 0, 0
        super().__init__(target, ())

    def sync(self, tokens: Sequence[int]) -> Scores:
        """As any target's; what the whole target has committed is taken from it, as far as it is kept."""
        tokens, whole = list(tokens), self._whole
        self._check(tokens)
        theirs = common(whole.seen, tokens[:-1])
        same = common(self.seen, tokens[:theirs])
        if theirs != self._borrowed or same < theirs:
            self._settled = self._settled if same >= self._borrowed <= theirs else 0
            if theirs:
                with torch.inference_mode():
                    rows, settled = self.keep(whole._cache[:, :, :, :theirs], self._settled)
                    self.kept = self._settled + rows.shape[3]
                    self._reserve(self.kept)
                    self._cache[:, :, :, self._settled:self.kept] = rows
                self._settled = settled
            else:
                self.kept = self._settled = 0
            self.seen, self._borrowed, self.offset = tokens[:theirs], theirs, theirs - self.kept
            self._drop()
        return CachedTarget.sync(self, tokens)

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        return super()._forward(replace(rows, past=rows.past - self.offset))

    def _turn(self, rows: Rows) -> Tensor:
        return super()._turn(replace(rows, past=rows.past + self.offset))

    def _gather(self, past: int, rows: list[int]) -> None:
        super()._gather(past - self.offset, rows)

    def close(self) -> None:
        super().close()
        self.offset = self.kept = self._settled = 0
