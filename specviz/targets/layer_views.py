"""Views of a target for self-speculation: the same weights and committed tokens, with skipped or grouped
layers. The "whole" target is the one that the view was made from, with all layers in sequence."""

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
    """A target without some sublayers (2i: attention of layer i, 2i + 1: its feed-forward), as a draft
    model without extra weights (SWIFT 2410.06916, Draft & Verify 2309.08168).

    It copies the keys and values of tokens that the whole target has committed, and has draft rows of its
    own. Raises InvalidUse for a sublayer that the target does not have.
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
        """Bring the cache to tokens[:-1]; keys and values that the whole target has committed are copied,
        the other tokens are run without the skipped sublayers. Return the Scores of the computed tokens."""
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
        """Context manager around the view's forward passes: adds their duration to the ``busy`` of the
        whole target, too, because only that is reported."""
        before = self.busy
        try:
            with super().timed():
                yield
        finally:
            self._whole.busy += self.busy - before

    def close(self) -> None:
        """Free the view's KV cache."""
        super().close()
        self._borrowed = 0


class GroupedLayers(SkippedLayers):
    """A view of a target that runs groups of layers in parallel (EasySpec, 2502.02493). The root's row is
    exact; the rows of draft nodes are approximate.

    Committed keys and values are those of the whole target; approximate ones are dropped after the round.
    """

    capabilities = frozenset({"tree", "rewind", "embed", "head"})

    def __init__(self, target: LlamaTarget, size: int):
        self.groups = groups_of(target.layers, size)
        super().__init__(target, ())

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Sync the whole target to tokens, then copy its committed keys and values."""
        self._whole.sync(tokens)
        self._whole.flush()
        return super().sync(tokens)

    def _layers(self, rows: Rows, x: Tensor, first: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        if not rows.lo:
            return super()._layers(rows, x, first, end)
        for group in self.groups:
            entered = x
            for i in group:
                attended = self.run_sublayer(rows, 2 * i, entered)
                x = self.run_sublayer(rows, 2 * i + 1, attended if x is entered else x + (attended - entered))
        return x, {}
