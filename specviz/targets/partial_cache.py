"""Self-speculation with a smaller KV cache: the target's weights over a selected or quantised part of its
KV cache (cache_selection.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..core import Scores, common_prefix_length
from .base import CachedTarget
from .cache_selection import CacheSelection
from .layer_views import SkippedLayers
from .llama import LlamaTarget
from .rows import Rows


class PartialCache(SkippedLayers):
    """A view of a target, used as its draft model, that attends to a part of the target's KV cache: the
    committed rows that ``keep`` selects, followed by draft rows of its own. Keys keep their rotary
    positions, so a row at position p is in slot p - offset.

    kept: number of slots copied from the target.
    """

    capabilities = frozenset({"tree", "rewind", "embed", "head"})

    def __init__(self, target: LlamaTarget, keep: CacheSelection):
        self.keep = keep
        self.offset = 0
        self.kept = 0
        self._finished = 0
        super().__init__(target, ())

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring the cache to tokens[:-1]; keys and values that the target has committed are copied as far
        as ``keep`` selects them, the other tokens are run."""
        tokens, whole = list(tokens), self._whole
        self._check(tokens)
        theirs = common_prefix_length(whole.cached_tokens, tokens[:-1])
        same = common_prefix_length(self.cached_tokens, tokens[:theirs])
        if theirs != self._borrowed or same < theirs:
            self._finished = self._finished if same >= self._borrowed <= theirs else 0
            if theirs:
                with torch.inference_mode():
                    rows, finished = self.keep(whole.slots[:, :, :, :theirs], self._finished)
                    self.kept = self._finished + rows.shape[3]
                    self._reserve(self.kept)
                    self.slots[:, :, :, self._finished : self.kept] = rows
                self._finished = finished
            else:
                self.kept = self._finished = 0
            self.cached_tokens = tokens[:theirs]
            self._borrowed = theirs
            self.offset = theirs - self.kept
            self._drop()
        return CachedTarget.sync(self, tokens)

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        return super()._forward(replace(rows, past=rows.past - self.offset))

    @property
    def position_offset(self) -> int:
        """Position of a row minus its slot."""
        return self.offset

    def _gather(self, past: int, rows: list[int]) -> None:
        super()._gather(past - self.offset, rows)

    def close(self) -> None:
        """Free the view's KV cache."""
        super().close()
        self.offset = self.kept = self._finished = 0
