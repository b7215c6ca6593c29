"""Models that learn while they are used: a target over a copy of its weights, which a run changes and nobody else sees."""
from __future__ import annotations

from contextlib import contextmanager
from typing import Sequence

import torch
from torch import Tensor

from ..models.learning import LearningLlama
from .base import CachedTarget
from .llama import LlamaTarget


class Learner(CachedTarget):
    """weights: the leaves that gradients reach. ``whole``: the target whose weights were copied; its clock counts these forwards."""

    weights: list[Tensor]
    whole: CachedTarget

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """[n, vocab] of a text from its beginning, with gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no network")

    def renew(self) -> None:
        """The weights have changed: what was computed with the old ones is forgotten, and the next sync() reads the text again."""
        self.seen, self.root = [], None
        self._drop()

    @contextmanager
    def timed(self):
        before = self.busy
        try:
            with super().timed():
                yield
        finally:
            self.whole.busy += self.busy - before


class LlamaLearner(Learner, LlamaTarget):
    def __init__(self, whole: LlamaTarget):
        self.whole = whole
        super().__init__(LearningLlama(whole.model))
        self.weights = self.model.weights

    def logits(self, tokens: Sequence[int]) -> Tensor:
        return self.model.logits(torch.tensor(list(tokens), device=self.model.device))
