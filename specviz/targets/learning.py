"""A target with a private, trainable copy of the weights, for online learning."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..models.learning import LearningLlama
from .base import CachedTarget
from .llama import LlamaTarget


class Learner(CachedTarget):
    """A copy of a target whose weights can be trained while it runs.

    weights: the trainable tensors. ``whole``: the target whose weights were copied; its ``busy`` includes these passes.
    """

    weights: list[Tensor]
    original: CachedTarget

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return logits [n, vocab] of a text from its beginning, with gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no network")

    def drop_outdated(self) -> None:
        """Drop everything computed with the old weights, after they changed. The next sync() computes the whole text again."""
        self.cached_tokens, self.root = [], None
        self._drop()

    @contextmanager
    def timed(self):
        before = self.busy
        try:
            with super().timed():
                yield
        finally:
            self.original.busy += self.busy - before


class LlamaLearner(Learner, LlamaTarget):
    model: LearningLlama

    def __init__(self, original: LlamaTarget):
        self.original = original
        super().__init__(LearningLlama(original.model))
        self.weights = self.model.weights

    def logits(self, tokens: Sequence[int]) -> Tensor:
        return self.model.logits(torch.tensor(list(tokens), device=self.model.device))
