"""This project's Llama-family forward pass as a target, with the capabilities that drafters use.

Weights are loaded once (FastModel); every FastTarget opened from them has its own KV cache (llama.py).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

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


class GeneratedTokens(NamedTuple):
    """Tokens generated in one call: logits [tokens, vocab], the distributions they were sampled from (None at
    temperature 0), final hidden states [tokens, hidden], and their probabilities if a threshold was given."""

    tokens: list[int]
    logits: Tensor
    distributions: Tensor | None
    states: Tensor
    token_probs: list[float]


class FastModel(Llama):
    """Weights of a Hugging Face folder: ``FastModel(folder, device="cpu", dtype=None)``, float32 on a CPU and bfloat16 on CUDA.

    ``open()`` returns targets that share them. ``forward``: name of the forward pass in the trace. Raises ModelError.
    """

    forward = "eager"

    def open(self) -> FastTarget:
        return FastTarget(self)


class FastTarget(LlamaTarget):
    """KV cache of one run over shared weights, with layer views, early exits and packed passes."""

    capabilities = LlamaTarget.capabilities | {
        "kv", "early", "skip", "layer_parallel", "learning", "partial_cache", "batch", "draft_chain", "sublayers",
        "draft_path"}
    model: FastModel
    work: ExitStates | None = None  # result of an early exit

    # --- capabilities ---------------------------------------------------------------------------------------
    def early(self, exit: int) -> EarlyExit:
        """Return the layers before ``exit``; their states stay in this target's scratch, and score() continues from them."""
        return EarlyExit(self, exit)

    def skipping(self, sublayers: Sequence[int]) -> SkippedLayers:
        """Return this target without some sublayers (2i: attention of layer i, 2i + 1: its feed-forward), over the same committed rows."""
        return SkippedLayers(self, sublayers)

    def sublayers(self, count: int) -> Sublayers:
        """Return the last ``count`` committed tokens, to be run through single sublayers."""
        return Sublayers(self, count)

    def layer_parallel(self, size: int) -> LlamaTarget:
        """Return this target with groups of ``size`` layers run in parallel, over the same committed rows."""
        return GroupedLayers(self, size)

    def partial_cache(self, keep: CacheSelection) -> LlamaTarget:
        """Return this target over the part of its KV cache that ``keep`` selects (cache_selection.py)."""
        return PartialCache(self, keep)

    def draft_path(self, path: DraftPath) -> LlamaDraftPath:
        """Return draft passes through a trained second path, over this target's KV cache."""
        return LlamaDraftPath(self, path)

    def learning(self) -> LlamaLearner:
        """Return this model with a trainable copy of its weights."""
        return LlamaLearner(self)

    @property
    def weights(self) -> FastModel:
        return self.model

    def draft_chain(self, after: Sequence[int], count: int, temperature: float, draw_uniforms: Callable[[int], list[float]],
              least: float | None = None) -> GeneratedTokens | None:
        """Generate ``count`` tokens autoregressively in one call: the argmax at temperature 0, else sampled with the
        uniform random numbers of ``roll(count)``. Stops after the first token with a probability below ``least``. None,
        without side effects, if the caller has to draft pass by pass.

        The generated tokens continue the chain ``after``, whose tokens except the last are in the scratch; the
        generated ones are appended to it in the same way.
        """
        writer, pending, past = self.model.writer, self._pending, len(self.cached_tokens)
        if writer is None or self.root is None:
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
            rng = torch.tensor(draw_uniforms(count) if temperature else [0.0], dtype=torch.float64)
            rotation = self.model.rotations(at + len(last_tokens) + count)
            made = writer(torch.tensor(last_tokens), rotation, self.slots, at, self._mask(rows), count, temperature, rng, least)
            generated = GeneratedTokens(made[0].tolist(), *made[1:])
            self.passes += len(generated.tokens)
        if not after:
            self.cached_tokens, self._pending = self.cached_tokens + pending, []
            self._logits = AppendableRows(generated.logits)
            self._hidden_states = {"final": AppendableRows(generated.states)} if self._want else {}
        else:
            assert self._logits is not None  # the chain lies in the scratch
            self._logits.add(len(after), generated.logits)
            for rows in self._hidden_states.values():
                rows.add(len(after), generated.states)
        self._tree, self._rows = DraftTree.chain((*after, *generated.tokens[:-1])), len(after) + len(generated.tokens)
        return generated

    def score_many(self, targets: Sequence[FastTarget], trees: Sequence[DraftTree], starts: Sequence[int] = ()) -> list[Scores]:
        """Return each target's score() of its tree, from one pass over the shared weights."""
        return score_packed(targets, trees, starts)

    # --- early exits -----------------------------------------------------------------------------------------------
    def _start(self, rows: Rows) -> tuple[Tensor, int]:
        work, self.work = self.work, None
        if work is not None and not rows.lo and not rows.last and self._continues(rows, work):
            return self._from(rows, work), work.exit
        return super()._start(rows)

    def _continues(self, rows: Rows, work: ExitStates) -> bool:
        """Return whether no entry or captured state concerns the layers that an early exit has already run."""
        return all(e.layer >= work.exit for e in rows.tree.inputs) and not any(f"layer:{i}" in self._want for i in range(work.exit))

    def _from(self, rows: Rows, work: ExitStates) -> Tensor:
        """Return states that enter layer ``work.exit``: those of the early exit, and new ones for the rows it did not run."""
        done = 1 + work.shared(rows.tree)
        x = work.states.first(done)
        return torch.cat([x, self.run_lower_layers(replace(rows, ids=rows.ids[done:], lo=done), work.exit)]) if done < len(rows.ids) else x

    def run_lower_layers(self, rows: Rows, exit: int) -> Tensor:
        """Return states [rows, hidden] that enter layer ``exit``."""
        return self._layers(rows, self._embed(rows), 0, exit)[0]

    def drop_draft_rows(self) -> None:
        super().drop_draft_rows()
        self.work = None
