"""Classifier-free guidance: a target whose logits are u + s (c - u), from the prompt (c) and from the prompt without its words (u).

Both texts have the same length, so a token's row is the same in both; a score is one forward pass of each. (Ho and Salimans 2207.12598;
as LANTERN and speculative Jacobi decoding use it, for target and draft alike, before any softmax.)
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from ..core import DraftTree, Scores, Verdict
from .base import CachedTarget


class GuidedTarget:
    """Two caches over the same weights. forget: maps the text to the one without its words; scale: s, 1 is no guidance."""

    capabilities = frozenset({"tree", "rewind"})

    def __init__(self, open_target: Callable[[], CachedTarget], forget: Callable[[Sequence[int]], list[int]], scale: float):
        self.given, self.free, self._forget, self.scale = open_target(), open_target(), forget, scale
        for name in ("vocab", "context", "hidden", "layers", "name"):
            setattr(self, name, getattr(self.given, name))

    @property
    def busy(self) -> float:
        return self.given.busy + self.free.busy

    @property
    def passes(self) -> int:
        return self.given.passes

    @property
    def cached_tokens(self) -> list[int]:
        return self.given.cached_tokens

    @property
    def root(self) -> int | None:
        return self.given.root

    def expect(self, rows: int) -> None:
        self.given.expect(rows)
        self.free.expect(rows)

    def capture(self, names: frozenset[str]) -> None:
        self.given.capture(names)

    def sync(self, tokens: Sequence[int]) -> Scores:
        return self._mixed(self.given.sync(tokens), self.free.sync(self._forget(tokens)))

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        return self._mixed(self.given.score(tree, start), self.free.score(tree, start))

    def commit(self, verdict: Verdict) -> None:
        self.given.commit(verdict)
        self.free.commit(verdict)

    def flush(self) -> None:
        self.given.flush()
        self.free.flush()

    def close(self) -> None:
        self.given.close()
        self.free.close()

    def _mixed(self, given: Scores, free: Scores) -> Scores:
        return replace(given, logits=self._guide(given.logits, free.logits), best=None) if len(given.logits) else given

    def _guide(self, given: Tensor, free: Tensor) -> Tensor:
        return free + self.scale * (given - free)
