"""Views of a target for self-speculation: the same weights and committed rows with skipped or grouped layers."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..core import Scores, common_prefix_length
from ..core.errors import InvalidUse
from .layer_groups import groups_of
from .llama import LlamaTarget
from .rows import Rows


class SkippedLayers(LlamaTarget):
    """A target without some sublayers (SWIFT 2410.06916, Draft & Verify 2309.08168): a draft model without extra weights.

    It copies the committed keys and values of the whole target and has its own scratch.
    """

    capabilities = frozenset({"tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head"})

    def __init__(self, target: LlamaTarget, sublayers: Sequence[int]):
        self.skip = frozenset(sublayers)
        alien = [s for s in self.skip if not 0 <= s < 2 * target.layers]
        if alien:
            raise InvalidUse(f"{target.name} has no sublayer {alien[0]}", "target.sublayer")
        self._whole, self._borrowed = target, 0
        super().__init__(target.model)

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring the cache to tokens[:-1]; rows committed by the whole target are copied, the others are run without the
        skipped sublayers. Returns the Scores of the last token."""
        tokens, whole = list(tokens), self._whole
        self._check(tokens)
        mine = min(self._borrowed, common_prefix_length(self.cached_tokens, tokens[:-1]))
        theirs = common_prefix_length(whole.cached_tokens, tokens[:-1])
        if theirs > mine:
            self._reserve(theirs)
            with torch.inference_mode():
                self.slots[:, :, :, mine:theirs] = whole.slots_in_order()[:, :, :, mine:theirs]
            self.cached_tokens = tokens[:theirs]
            self._drop()
        self._borrowed = max(mine, theirs)
        return super().sync(tokens)

    @contextmanager
    def timed(self):
        """Context manager around the view's forward passes: adds their duration to the target's ``busy``, too, because
        only the target's is reported."""
        before = self.busy
        try:
            with super().timed():
                yield
        finally:
            self._whole.busy += self.busy - before

    def close(self) -> None:
        super().close()
        self._borrowed = 0


class GroupedLayers(SkippedLayers):
    """A view of a target with groups of layers in parallel. The root's row is exact, the rows of nodes are approximate.

    Committed keys and values are those of the whole target; approximate ones are dropped after the round.
    """

    capabilities = frozenset({"tree", "rewind", "embed", "head"})

    def __init__(self, target: LlamaTarget, size: int):
        self.groups = groups_of(target.layers, size)
        super().__init__(target, ())

    def sync(self, tokens: Sequence[int]) -> Scores:
        self._whole.sync(tokens)
        self._whole.flush()
        return super().sync(tokens)

    def _layers(self, rows: Rows, x: Tensor, first: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        if not rows.lo:
            return super()._layers(rows, x, first, end)
        model, at, rotation, mask = self.model, rows.past + rows.lo, self._rotation(rows), self._mask(rows)
        for group in self.groups:
            entered = x
            for i in group:
                attended = model.attend(model.blocks[i], entered, rotation, self.slots[i], at, mask)
                x = model.transform(model.blocks[i], attended if x is entered else x + (attended - entered))
        return x, {}
