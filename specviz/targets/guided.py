"""Classifier-free guidance (Ho and Salimans 2207.12598) on a target that was also trained without its
prompt's words.

Two sequences over the same weights, each with a KV cache of its own: one reads the prompt, in the other
each word is replaced by an unknown one. Both are rows of one forward pass, and the logits u + scale (c - u)
take the place of the model's before any softmax, so every method drafts for, and is verified against, the
guided distribution. Only tokens of an output can be drawn, as in image models whose vocabulary (LlamaGen
2406.06525) or logits processor (Lumina-mGPT 2408.02657) has image tokens alone: guidance multiplies the
noise of logits that both rows keep very low, and the end token came too early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, cast

import torch
from torch import Tensor

from ..core import CapableTarget, DraftTree, Scores, Verdict
from .base import CachedTarget

KEPT = frozenset({"tree", "rewind", "tap:final", "tap:layer"})  # capabilities that go through this class


class GuidableTarget(Protocol):
    """A target with the capability "guide": it computes classifier-free guidance itself, with the
    unconditional branch in its own forward pass."""

    def guide(self, strength: float, unguided: Sequence[int], /) -> None:
        """Set the guidance scale. unguided: for each token id, the token that the unconditional branch
        reads in its place."""
        ...


class GuidedTarget:
    """A target whose logits are guided. Hidden states are those of the row with the prompt.

    unguided: the token that the row without the prompt reads in place of each token, [vocab]; scale: 1 is
    the target as it is, 0 the one without a prompt; drawable: the ids that may be drawn, all where None.
    """

    def __init__(
        self,
        with_prompt: CachedTarget,
        without: CachedTarget,
        unguided: Sequence[int],
        scale: float,
        drawable: range | None = None,
    ):
        self._model = with_prompt
        self._other = without
        self._unguided = unguided
        self.scale = scale
        self._drawable = drawable
        self.capabilities = with_prompt.capabilities & KEPT
        self._together = "batch" in with_prompt.capabilities

    name = property(lambda self: self._model.name)
    vocab = property(lambda self: self._model.vocab)
    context = property(lambda self: self._model.context)
    hidden = property(lambda self: self._model.hidden)
    layers = property(lambda self: self._model.layers)
    passes = property(lambda self: self._model.passes)
    busy = property(lambda self: self._model.busy + self._other.busy)
    cached_tokens = property(lambda self: self._model.cached_tokens)
    root = property(lambda self: self._model.root)

    def capture(self, names: frozenset[str]) -> None:
        """Request hidden states of the conditional branch."""
        self._model.capture(names)

    def expect(self, rows: int) -> None:
        """Announce the largest number of rows of one pass, to both branches."""
        self._model.expect(rows)
        self._other.expect(rows)

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring the KV caches of both branches to tokens[:-1], as ``Target.sync`` does; return guided
        Scores."""
        scores, others = (
            self._model.sync(tokens),
            self._other.sync([self._unguided[token] for token in tokens]),
        )
        both = len(scores.logits) and len(scores.logits) == len(others.logits)
        return replace(scores, logits=self._guided(scores.logits, others.logits)) if both else scores

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return guided logits of the root and every node, as ``Target.score`` does; both branches run in
        one pass where the target supports batches."""
        blind = replace(
            tree, tokens=tuple(self._unguided[int(token)] if token >= 0 else token for token in tree.tokens)
        )
        if self._together:
            found = cast(CapableTarget, self._model).score_many(
                [self._model, self._other], [tree, blind], [start, start]
            )
        else:
            found = [self._model.score(tree, start), self._other.score(blind, start)]
        return replace(found[0], logits=self._guided(found[0].logits, found[1].logits))

    def _guided(self, with_prompt: Tensor, without: Tensor) -> Tensor:
        logits = without + self.scale * (with_prompt - without)
        if self._drawable is not None:
            logits[..., : self._drawable.start] = logits[..., self._drawable.stop :] = -torch.inf
        return logits

    def commit(self, verdict: Verdict) -> None:
        """Keep the root and the accepted path in both KV caches."""
        self._model.commit(verdict)
        self._other.commit(replace(verdict, token=self._unguided[verdict.token]))

    def close(self) -> None:
        """Free both KV caches."""
        self._model.close()
        self._other.close()

    def flush(self) -> None:
        """Compute the tokens that ``sync`` deferred, in both branches."""
        self._model.flush()
        self._other.flush()

    def drop_draft_rows(self) -> None:
        """Drop the draft rows of both branches."""
        self._model.drop_draft_rows()
        self._other.drop_draft_rows()
