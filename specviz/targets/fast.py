"""Our own Llama-family forward as a target: one static tensor of keys and values, a tree mask, nothing copied needlessly.

Weights are loaded once (FastModel); every FastTarget made from them has its own cache, which is allocated when first needed
and grows in steps.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Sequence

import torch
from torch import Tensor

from ..core import DraftTree, Scores, common
from ..models.llama import Llama
from .base import CachedTarget
from .batched import score_packed
from .early import EarlyExit, Work
from .own_cache import Keep
from .rows import LARGE, Rows, Shape
from .side_by_side import groups_of

STEP = 256  # slots are allocated in multiples of this


class FastModel(Llama):
    """Weights of a Hugging Face folder: ``FastModel(folder, device="cpu", dtype=None)``, float32 on a CPU and bfloat16 on CUDA.

    ``open()`` gives targets that share them. ``forward``: how a pass runs, for the trace. Raises ModelError with a sentence.
    """

    forward = "eager"

    def open(self) -> FastTarget:
        return FastTarget(self)


class FastTarget(CachedTarget):
    """One run's cache over shared weights."""

    provides = frozenset({"tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head", "kv", "early", "skip", "fuzzy",
                          "lean", "batch"})
    skip: frozenset[int] = frozenset()  # sublayers that are left out
    work: Work | None = None  # of an early exit

    def __init__(self, model: FastModel):
        self.model, self.name = model, model.name
        self.vocab, self.context, self.hidden, self.layers = model.vocab, model.context, model.hidden, model.layers
        self._cache: Tensor | None = None  # [layers, 2, kv_heads, slots, head_dim]
        super().__init__()

    # --- what a target lends ---------------------------------------------------------------------------------------
    def embed(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Rows of the embedding table, [n, hidden]."""
        with torch.inference_mode():
            return self.model.embed(torch.as_tensor(ids, device=self.model.device))

    def head(self, states: Tensor) -> Tensor:
        """Logits of states [n, hidden] that have passed the last norm."""
        with torch.inference_mode():
            return self.model.head(states)

    def norm(self, states: Tensor) -> Tensor:
        """States [n, hidden] of any layer after the last norm: what ``head`` takes."""
        with torch.inference_mode():
            return self.model.norm_final(states)

    def kv(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys (rotated) and values of the committed rows, each [kv_heads, rows, head_dim]; a copy, in the checkpoint's layout."""
        self.settle()
        keys, values = self.lined_up()[layer, :, :, :len(self.seen)]
        return keys.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2), values.clone()

    def lined_up(self) -> Tensor:
        """The cache, [layers, 2, kv_heads, slots, head_dim], with committed rows in slots of their own positions."""
        self._reserve(0)
        return self._cache

    def early(self, exit: int) -> EarlyExit:
        """The layers before ``exit``; their work stays in this target's scratch, and score() continues from it."""
        return EarlyExit(self, exit)

    def skipping(self, sublayers: Sequence[int]) -> Skipping:
        """This target without some sublayers (2i: attention of layer i, 2i + 1: its feed-forward), over the same committed rows."""
        return Skipping(self, sublayers)

    def fuzzy(self, size: int) -> FastTarget:
        """This target with groups of ``size`` layers side by side, over the same committed rows."""
        return Fuzzy(self, size)

    def lean(self, keep: Keep) -> FastTarget:
        """This target over what ``keep`` leaves of its committed keys and values (own_cache.py)."""
        from .lean import Lean

        return Lean(self, keep)

    def score_many(self, targets: Sequence[FastTarget], trees: Sequence[DraftTree]) -> list[Scores]:
        """As each target's score() of its tree, in one pass over the weights that all of them share."""
        return score_packed(targets, trees)

    # --- the primitives --------------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        model, work, first = self.model, self.work, 0
        self.work = None
        if work is not None and not rows.lo and not rows.last and self._continues(rows, work):
            x, first = self._from(rows, work), work.exit
        else:
            x = self._embed(rows)
        x, taps = self._layers(rows, x, first, self.layers)
        x = model.norm_final(x)
        if "final" in self._want:
            taps["final"] = x
        logits = model.head(x[-1:] if rows.last else x)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)  # so that ``busy`` and the engine's clock see the work, not its launch
        return logits, taps

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

    def _embed(self, rows: Rows) -> Tensor:
        self._reserve(rows.past + len(rows.tree) + 1)
        return self.model.embed(torch.tensor(rows.ids, device=self.model.device))

    def _layers(self, rows: Rows, x: Tensor, first: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Layers first..end over the rows; the states after them and the taps met on the way."""
        model, at, taps = self.model, rows.past + rows.lo, {}
        turn, mask = self._turn(rows), self._mask(rows)
        for i, block in enumerate(model.blocks[first:end], first):
            x = self._enter(rows, i, x, taps)
            if 2 * i not in self.skip:
                x = model.attend(block, x, turn, self._cache[i], at, mask)
            if 2 * i + 1 not in self.skip:
                x = model.transform(block, x)
        return x, taps

    def _enter(self, rows: Rows, layer: int, x: Tensor, taps: dict[str, Tensor]) -> Tensor:
        """What enters a layer: states replaced by entries, tapped after that."""
        for entry, where in rows.entries(layer) if rows.tree.inputs else ():
            made = entry.make(x)
            x = x.clone()
            x[where] = made.to(x.dtype)
        if f"layer:{layer}" in self._want:
            taps[f"layer:{layer}"] = x
        return x

    def _turn(self, rows: Rows) -> Tensor:
        """Rotations of the rows. Positions beyond the context are held at the last one (probes may lie there)."""
        at, n = rows.past + rows.lo, len(rows.ids)
        if n == 1 and rows.lo == 0 or rows.chain and rows.past + len(rows.tree) < self.context:
            return self.model.turns(at + n)[at:at + n]
        table = self.model.turns(rows.past + len(rows.tree) + 1)
        return table[(rows.shape.depth + rows.past).clamp_(max=self.context - 1).to(self.model.device)]

    def _mask(self, rows: Rows) -> Tensor | None:
        """Added to scores, [group * rows, slots]: 0 where a row may look, -inf elsewhere. None when each sees everything."""
        if len(rows.ids) == 1 and rows.shape.all_seen:
            return None
        tile = (_tile if len(rows.tree) <= LARGE else _tile.__wrapped__)(rows.shape, self.model.group, self.model.dtype, self.model.device)
        if not rows.past:
            return tile
        mask = tile.new_zeros(tile.shape[0], rows.past + tile.shape[1])
        mask[:, rows.past:] = tile
        return mask

    def _reserve(self, slots: int) -> None:
        have = 0 if self._cache is None else self._cache.shape[3]
        if slots > have or self._cache is None:
            bigger = self.model.new_slots(-(-max(slots, 2 * have, 1) // STEP) * STEP)
            if have:
                bigger[:, :, :, :have] = self._cache
            self._cache = bigger

    def _gather(self, past: int, rows: list[int]) -> None:
        with torch.inference_mode():
            kept = self._cache.index_select(3, torch.tensor([past + row for row in rows], device=self.model.device))
            self._cache[:, :, :, past:past + len(rows)] = kept

    def forget(self) -> None:
        super().forget()
        self.work = None

    def close(self) -> None:
        super().close()
        self._cache = None


class Skipping(FastTarget):
    """A target without some sublayers (SWIFT 2410.06916, Draft & Verify 2309.08168): a draft model that needs no weights.

    It reads the committed keys and values of the whole target and keeps its own scratch.
    """

    provides = frozenset({"tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head"})

    def __init__(self, target: FastTarget, sublayers: Sequence[int]):
        self.skip = frozenset(sublayers)
        alien = [s for s in self.skip if not 0 <= s < 2 * target.layers]
        if alien:
            raise ValueError(f"{target.name} has no sublayer {alien[0]}")
        self._whole, self._borrowed = target, 0
        super().__init__(target.model)

    def sync(self, tokens: Sequence[int]) -> Scores:
        """As any target's; rows that the whole target has committed are taken from it, the rest is fed without the sublayers."""
        tokens, whole = list(tokens), self._whole
        self._check(tokens)
        mine = min(self._borrowed, common(self.seen, tokens[:-1]))
        theirs = common(whole.seen, tokens[:-1])
        if theirs > mine:
            self._reserve(theirs)
            with torch.inference_mode():
                self._cache[:, :, :, mine:theirs] = whole.lined_up()[:, :, :, mine:theirs]
            self.seen = tokens[:theirs]
            self._drop()
        self._borrowed = max(mine, theirs)
        return super().sync(tokens)

    @contextmanager
    def timed(self):
        """A view's forwards are its target's time too: who adds up ``busy`` knows the target alone."""
        before = self.busy
        try:
            with super().timed():
                yield
        finally:
            self._whole.busy += self.busy - before

    def close(self) -> None:
        super().close()
        self._borrowed = 0


class Fuzzy(Skipping):
    """A view of a target with groups of layers side by side. The root's row is exact, the nodes' are fuzzy.

    Keys and values of what is committed are the whole target's, made in order: the fuzzy ones live for one round (calibration).
    """

    provides = frozenset({"tree", "rewind", "embed", "head"})

    def __init__(self, target: FastTarget, size: int):
        self.groups = groups_of(target.layers, size)
        super().__init__(target, ())

    def sync(self, tokens: Sequence[int]) -> Scores:
        self._whole.sync(tokens)
        self._whole.settle()
        return super().sync(tokens)

    def _layers(self, rows: Rows, x: Tensor, first: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        if not rows.lo:
            return super()._layers(rows, x, first, end)
        model, at, turn, mask = self.model, rows.past + rows.lo, self._turn(rows), self._mask(rows)
        for group in self.groups:
            entered = x
            for i in group:
                seen = model.attend(model.blocks[i], entered, turn, self._cache[i], at, mask)
                x = model.transform(model.blocks[i], seen if x is entered else x + (seen - entered))
        return x, {}


@lru_cache(maxsize=512)
def _tile(shape: Shape, group: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The part of a mask over the scratch, repeated for the queries of a group; [group * rows, scratch slots]."""
    tile = torch.zeros(shape.sees.shape, dtype=dtype).masked_fill_(~shape.sees, -torch.inf)
    return tile.repeat(group, 1).to(device)
