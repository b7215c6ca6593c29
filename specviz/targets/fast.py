"""Our own Llama-family forward as a target, with all that it lends to drafters.

Weights are loaded once (FastModel); every FastTarget made from them has its own cache (llama.py).
"""
from __future__ import annotations

from dataclasses import replace
from typing import Callable, NamedTuple, Sequence

import torch
from torch import Tensor

from ..core import DraftTree, Scores
from ..models.llama import Llama
from .batched import score_packed
from .early import EarlyExit, Work
from .lean import Lean
from .learning import LlamaLearner
from .llama import LlamaTarget
from .own_cache import Keep
from .rows import Growing, Rows
from .views import Fuzzy, Skipping

class Written(NamedTuple):
    """Tokens that were written; each one's logits [tokens, vocab], the law it was drawn from (none at temperature 0), the state
    [tokens, hidden] that said it, and where one of little chance was to end them, its chance."""

    tokens: list[int]
    logits: Tensor
    distributions: Tensor | None
    states: Tensor
    token_probs: list[float]


class FastModel(Llama):
    """Weights of a Hugging Face folder: ``FastModel(folder, device="cpu", dtype=None)``, float32 on a CPU and bfloat16 on CUDA.

    ``open()`` gives targets that share them. ``forward``: how a pass runs, for the trace. Raises ModelError with a sentence.
    """

    forward = "eager"

    def open(self) -> FastTarget:
        return FastTarget(self)


class FastTarget(LlamaTarget):
    """One run's cache over shared weights, its views, its early exits, and passes it shares with other runs."""

    capabilities = LlamaTarget.capabilities | {"kv", "early", "skip", "fuzzy", "lean", "batch", "write"}
    work: Work | None = None  # of an early exit

    # --- what a target lends ---------------------------------------------------------------------------------------
    def early(self, exit: int) -> EarlyExit:
        """The layers before ``exit``; their work stays in this target's scratch, and score() continues from it."""
        return EarlyExit(self, exit)

    def skipping(self, sublayers: Sequence[int]) -> Skipping:
        """This target without some sublayers (2i: attention of layer i, 2i + 1: its feed-forward), over the same committed rows."""
        return Skipping(self, sublayers)

    def fuzzy(self, size: int) -> LlamaTarget:
        """This target with groups of ``size`` layers side by side, over the same committed rows."""
        return Fuzzy(self, size)

    def lean(self, keep: Keep) -> LlamaTarget:
        """This target over what ``keep`` leaves of its committed keys and values (own_cache.py)."""
        return Lean(self, keep)

    def learning(self) -> LlamaLearner:
        """This model with weights of its own, which may change."""
        return LlamaLearner(self)

    @property
    def weights(self) -> FastModel:
        return self.model

    def write(self, after: Sequence[int], count: int, temperature: float, roll: Callable[[int], list[float]],
              least: float | None = None) -> Written | None:
        """What ``count`` passes of one row give that each score the token drawn from the last: the most likely one at ``heat`` 0, else
        one at that temperature by a uniform of ``roll(count)``. A token with a chance below ``least`` is the last. They go on behind the
        chain ``after``, all of which but its last token lies in the scratch; so it does with what is written. None where it has to be
        done pass by pass: nothing was done.
        """
        writer, waiting, past = self.model.writer, self._waiting, len(self.seen)
        behind = [after[-1]] if after else [*waiting, self.root]
        at = past + len(after)
        odd = self._rows != len(after) or self._tree.tokens != tuple(after[:-1]) or self._want - {"final"}
        if writer is None or odd or self.root is None or at + len(behind) + count > self.context:
            return None
        rows = Rows(DraftTree.chain(tuple(behind[1:])), behind, at, 0, True)
        self._readable(behind)
        with self.timed():
            self._reserve(at + len(behind) + count)
            rng = torch.tensor(roll(count) if temperature else [0.0], dtype=torch.float64)
            turn = self.model.turns(at + len(behind) + count)
            found, *made = writer(torch.tensor(behind), turn, self._cache, at, self._mask(rows), count, temperature, rng, least)
            written = Written(found.tolist(), *made)
            self.passes += len(written.tokens)
        if not after:
            self.seen, self._waiting = self.seen + waiting, []
            self._logits, self._taps = Growing(written.logits), {"final": Growing(written.states)} if self._want else {}
        else:
            self._logits.add(len(after), written.logits)
            for rows in self._taps.values():
                rows.add(len(after), written.states)
        self._tree, self._rows = DraftTree.chain((*after, *written.tokens[:-1])), len(after) + len(written.tokens)
        return written

    def score_many(self, targets: Sequence[FastTarget], trees: Sequence[DraftTree], starts: Sequence[int] = ()) -> list[Scores]:
        """As each target's score() of its tree, in one pass over the weights that all of them share."""
        return score_packed(targets, trees, starts)

    # --- early exits -----------------------------------------------------------------------------------------------
    def _start(self, rows: Rows) -> tuple[Tensor, int]:
        work, self.work = self.work, None
        if work is not None and not rows.lo and not rows.last and self._continues(rows, work):
            return self._from(rows, work), work.exit
        return super()._start(rows)

    def _continues(self, rows: Rows, work: Work) -> bool:
        """Whether nothing is asked of the layers an early exit has already run."""
        return all(e.layer >= work.exit for e in rows.tree.inputs) and not any(f"layer:{i}" in self._want for i in range(work.exit))

    def _from(self, rows: Rows, work: Work) -> Tensor:
        """States that enter layer ``work.exit``: an early exit's, and for the rows it did not run, new ones."""
        done = 1 + work.shared(rows.tree)
        x = work.states.first(done)
        return torch.cat([x, self.lower(replace(rows, ids=rows.ids[done:], lo=done), work.exit)]) if done < len(rows.ids) else x

    def lower(self, rows: Rows, exit: int) -> Tensor:
        """States [rows, hidden] that enter layer ``exit``."""
        return self._layers(rows, self._embed(rows), 0, exit)[0]

    def forget(self) -> None:
        super().forget()
        self.work = None
