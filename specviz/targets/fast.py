"""This project's Llama-family forward pass as a target, with the capabilities that drafters use.

Weights are loaded once (FastModel); every FastTarget opened from them has its own KV cache (llama.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from ..core import DraftTree, Scores
from ..models.draft_path import DraftPath
from ..models.llama import Llama
from .cache_selection import CacheSelection
from .draft_path import LlamaDraftPath
from .early_exit import EarlyExit, ExitStates
from .layer_views import GroupedLayers, SkippedLayers
from .learning import LlamaLearner
from .llama import LlamaTarget
from .packed_pass import score_packed
from .partial_cache import PartialCache
from .rows import AppendableRows, Rows
from .sublayers import Sublayers


class GeneratedTokens:
    """A chain of draft tokens generated in one call: tokens; the distributions [tokens, vocab] they were
    sampled from (None at temperature 0); the tokens' probabilities, if a threshold was given. Logits [tokens,
    vocab] and final hidden states [tokens, hidden] are computed when they are first asked for.

    finite: number of tokens before the first whose logits overflow."""

    def __init__(
        self,
        tokens: list[int],
        distributions: Tensor | None,
        token_probs: list[float],
        logits: Callable[[], Tensor],
        states: Callable[[], Tensor],
        finite: int,
    ):
        self.tokens = tokens
        self.distributions = distributions
        self.token_probs = token_probs
        self.finite = finite
        self._logits = logits
        self._states = states

    @cached_property
    def logits(self) -> Tensor:
        """The logits [tokens, vocab] from which the tokens were chosen."""
        return self._logits()

    @cached_property
    def states(self) -> Tensor:
        """The final hidden states [tokens, hidden]."""
        return self._states()

    def first(self, count: int) -> GeneratedTokens:
        """Return the first ``count`` tokens."""
        return GeneratedTokens(
            self.tokens[:count],
            None if self.distributions is None else self.distributions[:count],
            self.token_probs[:count],
            lambda: self.logits[:count],
            lambda: self.states[:count],
            min(self.finite, count),
        )

    def in_vocabulary(self, fit: Callable[[Tensor, float], Tensor]) -> GeneratedTokens:
        """Return the same tokens with logits and distributions of another vocabulary. fit(rows, other): rows
        with ``other`` for the tokens that they lack."""
        return GeneratedTokens(
            self.tokens,
            None if self.distributions is None else fit(self.distributions, 0.0),
            self.token_probs,
            lambda: fit(self.logits, -torch.inf),
            lambda: self.states,
            self.finite,
        )


class FastModel(Llama):
    """Weights of a Hugging Face folder, shared by all targets that ``open()`` returns: ``FastModel(folder,
    device="cpu", dtype=None)``, float32 on a CPU and bfloat16 on CUDA.

    forward: name of this implementation of the forward pass in the trace. Raises ModelError.
    """

    forward = "eager"

    def open(self) -> FastTarget:
        """Return a target with a KV cache of its own over these weights."""
        return FastTarget(self)


class FastTarget(LlamaTarget):
    """Target with the KV cache of one run over shared weights, with layer views, early exits and passes
    packed from several sequences. work: hidden states of the last early exit."""

    capabilities = LlamaTarget.capabilities | {
        "kv",
        "early",
        "skip",
        "layer_parallel",
        "learning",
        "partial_cache",
        "batch",
        "draft_chain",
        "sublayers",
        "draft_path",
    }
    model: FastModel
    work: ExitStates | None = None  # result of an early exit

    # --- capabilities ---------------------------------------------------------------------------------------
    def early(self, exit: int) -> EarlyExit:
        """Return the layers before layer ``exit`` as a draft model. The states of its draft rows stay in
        this target, and score() continues from them."""
        return EarlyExit(self, exit)

    def skipping(self, sublayers: Sequence[int]) -> SkippedLayers:
        """Return a view of this target without some sublayers (2i: attention of layer i, 2i + 1: its
        feed-forward), over the same committed tokens."""
        return SkippedLayers(self, sublayers)

    def sublayers(self, count: int) -> Sublayers:
        """Return a runner that sends the last ``count`` committed tokens through single sublayers."""
        return Sublayers(self, count)

    def layer_parallel(self, size: int) -> LlamaTarget:
        """Return a view of this target with groups of ``size`` layers run in parallel (EasySpec), over the
        same committed tokens."""
        return GroupedLayers(self, size)

    def partial_cache(self, keep: CacheSelection) -> LlamaTarget:
        """Return a view of this target over the part of its KV cache that ``keep`` selects
        (cache_selection.py)."""
        return PartialCache(self, keep)

    def draft_path(self, path: DraftPath) -> LlamaDraftPath:
        """Return draft passes through a trained second path, over this target's KV cache."""
        return LlamaDraftPath(self, path)

    def learning(self) -> LlamaLearner:
        """Return a target over a trainable copy of the weights."""
        return LlamaLearner(self)

    @property
    def weights(self) -> FastModel:
        """The shared weights; targets with the same ones can share a pass."""
        return self.model

    def draft_chain(
        self,
        after: Sequence[int],
        count: int,
        temperature: float,
        draw_uniforms: Callable[[int], list[float]],
        min_prob: float | None = None,
    ) -> GeneratedTokens | None:
        """Generate ``count`` tokens autoregressively in one call: the argmax at temperature 0, else sampled
        with the uniform random numbers of ``draw_uniforms(count)``. Stops after the first token with a
        probability below ``min_prob``. Returns None, without side effects, if the caller has to draft pass
        by pass.

        The tokens continue the chain of draft tokens ``after``; all of it but the last token must be the
        current draft rows, and the generated tokens are appended to them in the same way.
        """
        pending = self._pending
        past = len(self.cached_tokens)
        if not self.model.can_generate or self.root is None:
            return None
        last_tokens = [after[-1]] if after else [*pending, self.root]
        at = past + len(after)
        odd = self._rows != len(after) or self._tree.tokens != tuple(after[:-1]) or self._want - {"final"}
        if odd or at + len(last_tokens) + count > self.context:
            return None
        rows = Rows(DraftTree.chain(tuple(last_tokens[1:])), last_tokens, at, 0, True)
        self._readable(last_tokens)
        with self.timed():
            self._reserve(at + len(last_tokens) + count)
            uniforms = draw_uniforms(count) if temperature else None
            generated = self._generate(rows, count, temperature, uniforms, min_prob)
            self.passes += len(generated.tokens)
        if not after:
            self.cached_tokens, self._pending = self.cached_tokens + pending, []
            made = len(generated.tokens)
            self._logits = AppendableRows(lambda: generated.logits, made)
            states = AppendableRows(lambda: generated.states, made)
            self._hidden_states = {"final": states} if self._want else {}
        else:
            assert self._logits is not None  # the chain is in the draft rows
            self._logits.add(len(after), generated.logits)
            for rows in self._hidden_states.values():
                rows.add(len(after), generated.states)
        self._tree, self._rows = (
            DraftTree.chain((*after, *generated.tokens[:-1])),
            len(after) + len(generated.tokens),
        )
        return generated

    def _generate(
        self,
        rows: Rows,
        count: int,
        temperature: float,
        uniforms: list[float] | None,
        min_prob: float | None,
    ) -> GeneratedTokens:
        made = self.model.generate(self.sequence_rows(rows), count, temperature, uniforms, min_prob)
        return GeneratedTokens(*made)

    def score_many(
        self, targets: Sequence[FastTarget], trees: Sequence[DraftTree], starts: Sequence[int] = ()
    ) -> list[Scores]:
        """Return each target's score() of its tree, from one pass over the shared weights
        (packed_pass.py)."""
        return score_packed(targets, trees, starts)

    # --- early exits -----------------------------------------------------------------------------------------------
    def _start(self, rows: Rows) -> tuple[Tensor, int]:
        work, self.work = self.work, None
        if work is not None and not rows.lo and not rows.last and self._continues(rows, work):
            return self._from(rows, work), work.exit
        return super()._start(rows)

    def _continues(self, rows: Rows, work: ExitStates) -> bool:
        """Return whether the pass may continue from an early exit: no HiddenInput or captured state
        concerns the layers that the exit has already run."""
        return all(e.layer >= work.exit for e in rows.tree.inputs) and not any(
            f"layer:{i}" in self._want for i in range(work.exit)
        )

    def _from(self, rows: Rows, work: ExitStates) -> Tensor:
        """Return states that enter layer ``work.exit``: those of the early exit, and new ones for the rows
        it did not run."""
        done = 1 + work.shared(rows.tree)
        x = work.states.first(done)
        return (
            torch.cat([x, self.run_lower_layers(replace(rows, ids=rows.ids[done:], lo=done), work.exit)])
            if done < len(rows.ids)
            else x
        )

    def run_lower_layers(self, rows: Rows, exit: int) -> Tensor:
        """Run the layers before layer ``exit`` over the rows; return the states [rows, hidden] that enter
        it."""
        return self._layers(rows, self._embed(rows), 0, exit)[0]

    def drop_draft_rows(self) -> None:
        """Drop the draft rows, the deferred tokens, and the states of an early exit."""
        super().drop_draft_rows()
        self.work = None
