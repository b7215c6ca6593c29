"""A draft model that reads a few tokens of its own before the text, such as a caption of the picture that
the target reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import Budget, CapableTarget, DraftSteps, DraftTree, Scores, State
from .chain import DraftChain


class PrefixedModel:
    """A draft model that reads the tokens ``prefix`` before every text. Its KV cache and its positions
    include the prefix; everything else is delegated to ``model``."""

    def __init__(self, model: CapableTarget, prefix: Sequence[int]):
        self._model, self._prefix = model, list(prefix)

    @property
    def scoring_model(self) -> CapableTarget:
        """The model that scores draft trees: the prefix is in its KV cache, so a batched pass takes the
        model itself."""
        return self._model

    def sync(self, tokens: Sequence[int]) -> Scores:
        return self._model.sync([*self._prefix, *tokens])

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        return self._model.score(tree, start)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy that has no model yet
            raise AttributeError(name)
        return getattr(self._model, name)


class CaptionedChain(DraftChain):
    """Drafter of a chain with a draft model that reads a caption of the picture before the text, because it
    cannot read the picture that the target reads. caption: its tokens, may be empty; picture: whether the
    target reads a picture, for the note "reads"."""

    def __init__(self, model: CapableTarget, caption: Sequence[int], picture: bool):
        super().__init__(PrefixedModel(model, caption))
        self.caption, self.picture = [int(token) for token in caption], picture

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        state.note("reads", picture=self.picture, caption=self.caption)
        return (yield from super().steps(state, budget))
