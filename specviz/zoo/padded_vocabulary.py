"""Give the logits of a draft model, whose output matrix is padded to another size, the width of its target's."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

import torch
from torch.nn import functional as F

from ..core import DraftTree, Scores, Target


class PaddedVocabulary:
    """A draft model with the same tokenizer whose output is padded to another width: its logits in the target's width."""

    def __init__(self, model: Target, vocab: int):
        self._model, self.vocab = model, vocab

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def learning(self) -> PaddedVocabulary:
        return PaddedVocabulary(self._model.learning(), self.vocab)

    def sync(self, tokens) -> Scores:
        return self._fit(self._model.sync(tokens))

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        return self._fit(self._model.score(tree, start))

    def score_many(self, targets: Sequence[PaddedVocabulary], trees: Sequence[DraftTree], starts: Sequence[int] = ()) -> list[Scores]:
        inner = [target._model for target in targets]
        return [self._fit(scores) for scores in self._model.score_many(inner, trees, starts)]

    @property
    def weights(self) -> Any:
        return self._model.weights, self.vocab

    def _fit(self, scores: Scores) -> Scores:
        more = self.vocab - scores.logits.shape[-1]
        return replace(scores, logits=F.pad(scores.logits, (0, more), value=-torch.inf) if more > 0 else scores.logits[..., :more])
