"""Targets with a private, trainable copy of the weights, for online learning."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..models.learning import LearningLlama
from .base import CachedTarget
from .llama import LlamaTarget


class Learner(CachedTarget):
    """Base class of targets over a copy of another target's weights that can be trained while it runs.

    weights: the trainable tensors; original: the target whose weights were copied; its ``busy`` includes
    these passes.
    """

    weights: list[Tensor]
    original: CachedTarget

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return logits [n, vocab] of a text from its beginning, with gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no network")

    def drop_outdated(self) -> None:
        """Drop everything computed with the old weights, after they changed. The next sync() computes the
        whole text again."""
        self.cached_tokens, self.root = [], None
        self._drop()

    @contextmanager
    def timed(self):
        """Context manager around forward passes: adds their duration to the original target's ``busy``,
        too."""
        before = self.busy
        try:
            with super().timed():
                yield
        finally:
            self.original.busy += self.busy - before


class LlamaLearner(Learner, LlamaTarget):
    """Target over a trainable copy of a model of the Llama family."""

    model: LearningLlama

    def __init__(self, original: LlamaTarget):
        self.original = original
        super().__init__(LearningLlama(original.model))
        self.weights = self.model.weights

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return logits [n, vocab] of a text from its beginning, with gradients."""
        return self.model.logits(torch.tensor(list(tokens), device=self.model.device))
