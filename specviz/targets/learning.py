"""Models that learn while they are used: a target over a copy of its weights, which a run changes and nobody else sees."""
from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Sequence

import torch
from torch import Tensor

from ..models.learning import LearningLlama
from ..models.pretrained import blocks_of
from .base import CachedTarget
from .fast import FastTarget
from .hf import HFTarget, UncachedTarget
from .tiny import TinyTarget


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


class FastLearner(Learner, FastTarget):
    def __init__(self, whole: FastTarget):
        self.whole = whole
        super().__init__(LearningLlama(whole.model))
        self.weights = self.model.weights

    def logits(self, tokens: Sequence[int]) -> Tensor:
        return self.model.logits(torch.tensor(list(tokens), device=self.model.device))


class TinyLearner(Learner, TinyTarget):
    def __init__(self, whole: TinyTarget):
        self.whole = whole
        with torch.inference_mode(False):
            net = whole.net.blend(whole.net, 0.0)
            own = [net.embedding, net.output, *(weight for layer in net.layers for weight in layer.values())]
            self.weights = [weight.requires_grad_() for weight in own]
        super().__init__(net, whole.context)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        return self.net.logits(tokens)


class HFLearner(Learner, HFTarget):
    """Raises ValueError for weights that are not plain numbers."""

    def __init__(self, whole: HFTarget):
        self.whole, model = whole, copy.copy(whole.model)
        if any(not weight.is_floating_point() or weight.device.type == "meta" for weight in model.net.parameters()):
            raise ValueError(f"{whole.name} cannot learn: its weights are rounded, or lie on several devices")
        with torch.inference_mode(False):
            model.net = copy.deepcopy(whole.model.net).float().requires_grad_(True)
        model.dtype, model.blocks = torch.float32, blocks_of(model.net, model.config)
        self.weights = list(model.net.parameters())
        super().__init__(model)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        return self.model.run(list(tokens), use_cache=False)


class UncachedLearner(HFLearner, UncachedTarget):
    """The same for a model whose state cannot be rewound."""
