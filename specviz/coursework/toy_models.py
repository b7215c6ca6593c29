"""Tiny models in place of loaded ones (zoo.Loaded), so that a check needs no download and takes seconds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..core import Method
from ..targets.tiny import TinyNet, TinyTarget

PROMPTS = ([1, 2, 0, 3, 1, 2], [4, 4, 1], [5, 0, 5, 0])


class TinyLoaded:
    """A tiny target and a draft model that agrees with it in part. share: 0: the draft is the target, 1: it has
    nothing in common with it; sharp: factor of the logits."""

    name = "the tiny model"
    end_tokens = frozenset[int]()
    context = 96

    def __init__(self, seed: int = 0, vocab: int = 10, share: float = 0.3, sharp: float = 1.4):
        self.net = TinyNet(vocab, seed, sharp=sharp)
        self.small = self.net.interpolate(TinyNet(vocab, seed + 1, sharp=sharp), share)
        self.codec = SimpleNamespace(prompts=PROMPTS)

    def open_target(self) -> TinyTarget:
        """Return the target with a KV cache of its own."""
        return TinyTarget(self.net, self.context)

    def kit(self) -> Any:
        """Return what Method.build is given."""
        return SimpleNamespace(
            vocab=self.net.vocab,
            target=self.open_target(),
            open=lambda role, required=False: TinyTarget(self.small, self.context),
        )

    def unsupported_reason(self, method: Method) -> None:
        """Return None: every exercise runs on the tiny models."""

    def knob_limits(self, method: Method) -> dict[str, int]:
        """Return no limits."""
        return {}
