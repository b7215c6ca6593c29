"""A draft model as a drafter uses it: its logits are as wide as the target's, and its distribution is
uniform wherever the model fails.

Two models with one tokenizer may pad their output matrices to different sizes, a draft model's context may
be shorter than the target's, and its logits may overflow. None of that may end a run or change its text.
Verification is exact for every draft distribution, so a failing draft model costs speed and is not an
error. The runner calls ``ready`` between rounds and drafts nothing once it returns False."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core import CapableTarget, DraftTree, Scores, TrainableTarget, Verdict

CAPABILITIES = frozenset(
    {
        "tree",
        "rewind",
        "tap:final",
        "tap:layer",
        "entry",
        "batch",
        "draft_chain",
        "skip",
        "layer_parallel",
        "learning",
    }
)


class DraftModel:
    """A draft model, or a model that verifies drafts before the target does, with its own KV cache. It has
    the interface of a target (targets/base.py); methods without a docstring here are described there.
    vocab: the target's vocabulary size; name: as in models.yaml.

    Tokens that it does not know are read as its token 0. A token beyond ``vocab`` is never proposed.
    Drafters can access only the attributes listed here. ``problem``: why it stopped drafting, for the
    trace; None while it works."""

    def __init__(self, model: CapableTarget, vocab: int, name: str):
        self._model = model
        self.vocab = vocab
        self.name = name
        self.context: int = model.context
        self.capabilities = model.capabilities & CAPABILITIES - (
            set() if model.vocab <= vocab else {"draft_chain"}
        )
        self.problem: dict[str, Any] | None = None
        self._length, self._failed, self._broken = (
            0,
            False,
            None,
        )  # of the synced text; until the next sync; a tensor on a device
        self._captured: frozenset[str] = frozenset()

    layers = property(lambda self: self._model.layers)
    hidden = property(lambda self: self._model.hidden)
    busy = property(lambda self: self._model.busy)
    passes = property(lambda self: self._model.passes)

    @property
    def weights(self) -> Any:
        """A key that identifies the weights. It is equal for models that can share a forward pass."""
        return self._model.weights, self.vocab

    def ready(self) -> bool:
        """Return whether the model can draft in the next round."""
        if self._broken is not None and bool(self._broken):
            self._stop("overflow")
        self._broken = None
        if self._length >= self.context:
            self._stop("context")
        return self.problem is None

    def capture(self, names: frozenset[str]) -> None:
        """Request hidden states along with the logits, by name."""
        self._model.capture(names)
        self._captured = frozenset(names)

    def expect(self, rows: int) -> None:
        """Announce the largest number of tokens (root and draft nodes) of one forward pass."""
        self._model.expect(rows)

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring the KV cache to ``tokens[:-1]``; return the scores of that pass, uniform ones if the model
        failed."""
        self._length = len(tokens)
        self._failed = self._length > self.context or self._overflowed
        if self._failed:
            if self._length > self.context:
                self._stop("context")
            return self._uniform(0)
        return self._fitted(self._model.sync(self._known(tokens)))

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the scores of a draft tree, [1 + nodes, vocab], uniform if the model failed."""
        if self._fails(tree):
            return self._uniform(1 + len(tree))
        return self._fitted(self._model.score(self._known_tree(tree), start))

    def score_many(
        self, models: Sequence[DraftModel], trees: Sequence[DraftTree], starts: Sequence[int] = ()
    ) -> list[Scores]:
        """Return the scores of several models' trees from one forward pass. starts: as ``start`` of
        ``score``."""
        fails = [model._fails(tree) for model, tree in zip(models, trees)]
        able = [i for i, failed in enumerate(fails) if not failed]
        found = (
            iter(
                self._model.score_many(
                    [models[i]._model for i in able],
                    [models[i]._known_tree(trees[i]) for i in able],
                    [starts[i] for i in able] if starts else (),
                )
            )
            if able
            else iter(())
        )
        return [
            model._uniform(1 + len(tree)) if failed else model._fitted(next(found))
            for model, tree, failed in zip(models, trees, fails)
        ]

    def draft_chain(
        self,
        after: Sequence[int],
        count: int,
        temperature: float,
        draw_uniforms: Callable[[int], list[float]],
        min_prob: float | None = None,
    ) -> Any:
        """Draft a chain of up to ``count`` tokens after the tokens ``after`` in one call. The chain ends
        before the first token whose logits overflow. None if the caller has to draft with one forward pass
        per token."""
        if self._failed or self._length + len(after) + count > self.context:
            return None
        written = self._model.draft_chain(after, count, temperature, draw_uniforms, min_prob)
        if written is None:
            return None
        if written.finite < len(written.tokens):
            self._overflow()
            if not written.finite:
                return None
            written = written.first(written.finite)
        return written if self._model.vocab == self.vocab else written.in_vocabulary(self._fit)

    def commit(self, verdict: Verdict) -> None:
        """Keep the accepted path of a scored tree in the KV cache."""
        if not self._failed:
            self._model.commit(replace(verdict, token=self._known([verdict.token])[0]))
            self._length += len(verdict.path) + 1

    def learning(self) -> TrainableDraftModel:
        """Return a draft model with a copy of these weights that can be trained."""
        return TrainableDraftModel(self._model.learning(), self.vocab, self.name)

    def skipping(self, sublayers: Sequence[int]) -> DraftModel:
        """Return a draft model with the same weights that skips these sublayers."""
        return DraftModel(self._model.skipping(sublayers), self.vocab, self.name)

    def layer_parallel(self, size: int) -> DraftModel:
        """Return a draft model with the same weights that runs ``size`` consecutive layers on the same
        input."""
        return DraftModel(self._model.layer_parallel(size), self.vocab, self.name)

    def flush(self) -> None:
        """Compute the tokens that ``sync`` deferred."""
        self._model.flush()

    def drop_draft_rows(self) -> None:
        self._model.drop_draft_rows()

    def close(self) -> None:
        """Free the KV cache."""
        self._model.close()

    # --- fitting ---------------------------------------------------------------------------------------------------------
    def _known(self, tokens: Sequence[int]) -> list[int]:
        """Replace tokens that the model does not know by token 0."""
        return [token if token < self._model.vocab else 0 for token in tokens]

    def _known_tree(self, tree: DraftTree) -> DraftTree:
        if self._model.vocab >= self.vocab or all(int(token) < self._model.vocab for token in tree.tokens):
            return tree
        return replace(tree, tokens=tuple(self._known([int(token) for token in tree.tokens])))

    def _fitted(self, scores: Scores) -> Scores:
        """Return logits of the target's width, with overflowed rows replaced by a uniform distribution."""
        logits = scores.logits
        if logits.device.type == "cpu":
            if len(logits) and _may_overflow(logits):
                logits = self._mended(logits)
        elif len(logits):
            good = torch.isfinite(logits.sum(-1, keepdim=True))
            logits = torch.where(good, logits, 0)  # without waiting for the device
            bad = ~good.all()
            self._broken = bad if self._broken is None else self._broken | bad
        if logits is scores.logits and logits.shape[-1] == self.vocab:
            return scores
        return replace(scores, logits=self._fit(logits, -torch.inf))

    def _mended(self, logits: Tensor) -> Tensor:
        """Return the logits with NaN rows replaced by zeros; minus infinity is allowed."""
        bad = torch.isnan(logits).any(-1) | (logits == torch.inf).any(-1) | (logits == -torch.inf).all(-1)
        if not bool(bad.any()):
            return logits
        self._overflow()
        return logits.masked_fill(bad[:, None], 0.0)

    def _fit(self, rows: Tensor, fill: float) -> Tensor:
        more = self.vocab - rows.shape[-1]
        return F.pad(rows, (0, more), value=fill) if more > 0 else rows[..., : self.vocab]

    def _uniform(self, rows: int) -> Scores:
        device = getattr(getattr(self._model, "model", None), "device", "cpu")
        states = {name: torch.zeros(rows, self.hidden, device=device) for name in self._captured}
        return Scores(torch.zeros(rows, self.vocab, device=device), states, max(0, self._length - 1))

    def _fails(self, tree: DraftTree) -> bool:
        """Return whether the tree cannot be scored; then nothing can until the next sync, which refills the
        scratch."""
        self._failed = self._failed or self._length + max(tree.depths, default=0) > self.context
        return self._failed

    @property
    def _overflowed(self) -> bool:
        return self.problem is not None and self.problem["reason"] == "overflow"

    def _overflow(self) -> None:
        self._failed = True
        self._stop("overflow")

    def _stop(self, reason: str) -> None:
        self.problem = self.problem or {"model": self.name, "reason": reason, "tokens": self._length}


def _may_overflow(logits: Tensor) -> bool:
    """Return whether logits [rows, vocab] may hold NaN, infinity, or a row without any token. Minus infinity alone
    is how a model leaves tokens out."""
    total = float(logits.sum())
    return not math.isfinite(total) and (total != -math.inf or bool(logits.amax(-1).isinf().any()))


class TrainableDraftModel(DraftModel):
    """A draft model whose weights are trained during a run."""

    _model: TrainableTarget

    @property
    def weights(self) -> Any:
        """The trainable tensors."""
        return self._model.weights

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return the logits after each token, [tokens, vocab], with gradients."""
        return self._model.logits(self._known(tokens))

    def drop_outdated(self) -> None:
        self._model.drop_outdated()
