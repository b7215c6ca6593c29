"""Target with the KV cache of one run over shared weights of the Llama family: one tensor, and a tree
attention mask for draft trees.

The cache is allocated on first use and grows in steps. Base class of targets (fast.py) and of their views
(layer_views.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core import DraftTree, LazyScalar, to_device, token_tensor
from ..kernels.sequence_rows import SequenceRows, chain_rows
from ..models.llama import Llama
from .base import CachedTarget
from .rows import LARGE, Rows, Shape, cached_seen_rows, seen_rows

STEP = 256  # slots are allocated in multiples of this


class LlamaTarget(CachedTarget):
    """Target with the KV cache of one run over shared weights of the Llama family. skip: sublayers that are
    left out (2i: attention of layer i, 2i + 1: its feed-forward)."""

    capabilities = frozenset({"tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head"})
    skip: frozenset[int] = frozenset()  # sublayers that are left out
    work: Any = None  # result of an early exit, where a target has them

    def __init__(self, model: Llama):
        self.model, self.name = model, model.name
        self.vocab = model.vocab
        self.context = model.context
        self.hidden = model.hidden
        self.layers = model.layers
        self._cache: Tensor | None = None  # [layers, 2, kv_heads, slots, head_dim]
        super().__init__()

    # --- capabilities ---------------------------------------------------------------------------------------
    def embed(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids."""
        with torch.inference_mode():
            return self.model.embed(ids if isinstance(ids, Tensor) else token_tensor(self.model.device, ids))

    def head(self, states: Tensor) -> Tensor:
        """Multiply hidden states [n, hidden], to which the final norm has already been applied, by the
        output matrix (lm_head); return logits [n, vocab]."""
        with torch.inference_mode():
            return self.model.head(states)

    def norm(self, states: Tensor) -> Tensor:
        """Apply the final norm to states [n, hidden] of any layer; the result is an input of ``head``."""
        with torch.inference_mode():
            return self.model.norm_final(states)

    @property
    def position_offset(self) -> int:
        """Position of a row minus its slot."""
        return 0

    @property
    def prefix(self) -> int:
        """Number of cached rows before the first token, such as those of a picture."""
        return 0

    def kv(self, layer: int, draft_rows: int = 0) -> tuple[Tensor, Tensor]:
        """Return a copy of the keys (rotated) and values of a layer, each [kv_heads, rows, head_dim] in the
        checkpoint's layout: of the committed tokens and of the first ``draft_rows`` draft rows."""
        self.flush()
        first = self.prefix
        keys, values = self.slots_in_order()[
            layer, :, :, first : first + len(self.cached_tokens) + draft_rows
        ]
        return keys.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2), values.clone()

    @property
    def slots(self) -> Tensor:
        """The KV cache, [layers, 2, kv_heads, slots, head_dim], keys first. Valid once slots were reserved
        by a pass."""
        assert self._cache is not None
        return self._cache

    def slots_in_order(self) -> Tensor:
        """Return the KV cache, [layers, 2, kv_heads, slots, head_dim], with the row of each position in the
        slot of the same number."""
        self._reserve(0)
        return self.slots

    def row_token_ids(self, tree: DraftTree, lo: int) -> list[int]:
        """Return the token ids of the draft rows from row ``lo`` on, as the base class does. Lazy scalars
        stay on the device; they need no check, because they come from logits of this vocabulary."""
        ids = [token if type(token) is LazyScalar else max(token, 0) for token in self._tokens_from(tree, lo)]
        self._readable([token for token in ids if type(token) is not LazyScalar])
        return ids

    def run_sublayer(self, rows: Rows, index: int, x: Tensor) -> Tensor:
        """Return states [rows, hidden] plus the output of one sublayer (2i: attention of layer i, 2i + 1: its
        feed-forward)."""
        model = self.model
        layer = index // 2
        block = model.blocks[layer]
        if model.compiled is not None:
            return model.run_compiled([self.sequence_rows(rows)], x, layer, layer + 1, (index ^ 1,))
        if index % 2:
            return model.transform(block, x)
        at = rows.past + rows.lo
        return model.attend(block, x, self._rotation(rows), self.slots[layer], at, self._mask(rows))

    # --- the primitives --------------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        model = self.model
        x, first = self._start(rows)
        if model.compiled is not None:
            lane = self, rows, self.sequence_rows(rows)
            logits, (states,) = run_compiled(model, [lane], x, first, 1 if rows.last else len(rows.ids))
            return logits, states
        x, hidden_states = self._layers(rows, x, first, self.layers)
        x = model.norm_output(x)
        if "final" in self._want:
            hidden_states["final"] = model.final_states(x)
        logits = model.output(x[-1:] if rows.last else x)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)  # so that timings include the work, not only its launch
        return logits, hidden_states

    def _start(self, rows: Rows) -> tuple[Tensor, int]:
        """Return initial states [rows, hidden] and the layer that they enter."""
        return self._embed(rows), 0

    def _embed(self, rows: Rows) -> Tensor:
        self._reserve(rows.past + len(rows.tree) + 1)
        return self.model.enter(token_tensor(self.model.device, rows.ids))

    def _layers(self, rows: Rows, x: Tensor, first: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Run layers first..end over the rows; return the states after them and the captured ones."""
        model = self.model
        if model.compiled is not None:
            lane = self, rows, self.sequence_rows(rows)
            x, (states,) = run_compiled_layers(model, [lane], x, first, end)
            return x, states
        at = rows.past + rows.lo
        hidden_states = {}
        rotation, mask = self._rotation(rows), self._mask(rows)
        if not self.skip and not rows.tree.inputs:
            wanted = [i for i in range(first, end) if f"layer:{i}" in self._want] if self._want else []
            x, found = model.run_blocks(x, rotation, self.slots, at, mask, first, end, wanted)
            return x, {f"layer:{i}": model.to_checkpoint(states) for i, states in zip(wanted, found)}
        for i, block in enumerate(model.blocks[first:end], first):
            x = self._enter(rows, i, x, hidden_states)
            if 2 * i not in self.skip:
                x = model.attend(block, x, rotation, self.slots[i], at, mask)
            if 2 * i + 1 not in self.skip:
                x = model.transform(block, x)
        return x, hidden_states

    def _enter(self, rows: Rows, layer: int, x: Tensor, hidden_states: dict[str, Tensor]) -> Tensor:
        """Return the input of a layer: replace states by entries, then capture."""
        for entry, where in rows.entries(layer) if rows.tree.inputs else ():
            made = self.model.from_checkpoint(entry.make(self.model.to_checkpoint(x)).to(x.dtype))
            x = x.clone()
            x.index_copy_(0, to_device(torch.tensor(where), x.device), made)
        if f"layer:{layer}" in self._want:
            hidden_states[f"layer:{layer}"] = self.model.to_checkpoint(x)
        return x

    def _rotation(self, rows: Rows) -> Tensor:
        """Return the rotations of the rows. Positions beyond the last one (probes) are clamped to it."""
        past, n = rows.past + self.position_offset, len(rows.ids)
        at = past + rows.lo
        if n == 1 and rows.lo == 0 or rows.chain and past + len(rows.tree) < self.model.positions:
            return self.model.rotations(at + n)[at : at + n]
        table = self.model.rotations(past + len(rows.tree) + 1)
        return table[
            to_device((rows.shape.depth + past).clamp_(max=self.model.positions - 1), self.model.device)
        ]

    def sequence_rows(self, rows: Rows) -> SequenceRows:
        """Return the rows as the compiled pass reads them; slots for them are reserved."""
        past, n, positions = rows.past, len(rows.ids), self.model.positions
        at = past + rows.lo
        self.model.rotations(past + self.position_offset + len(rows.tree) + 1)
        slots = self.slots
        cache, capacity = slots.data_ptr(), slots.shape[3]
        if rows.causal_chain:
            return chain_rows(cache, capacity, rows.ids, at, at + self.position_offset, positions)
        seen = (seen_rows if len(rows.tree) > LARGE else cached_seen_rows)(rows.shape)
        return SequenceRows(
            cache,
            capacity,
            np.asarray(rows.ids, np.int64),
            np.minimum(seen.depths + (past + self.position_offset), positions - 1),
            np.arange(at, at + n),
            np.full(n, past),
            seen.counts,
            seen.lists + np.int32(past),
        )

    def _mask(self, rows: Rows) -> Tensor | None:
        """Return the bias added to scores, [group * rows, slots]: 0 for visible slots, else -inf. None if
        all are visible."""
        if len(rows.ids) == 1 and rows.shape.all_seen:
            return None
        tile = (_tile if len(rows.tree) <= LARGE else _tile.__wrapped__)(
            rows.shape, self.model.group, self.model.dtype, self.model.device
        )
        if not rows.past:
            return tile
        mask = tile.new_zeros(tile.shape[0], rows.past + tile.shape[1])
        mask[:, rows.past :] = tile
        return mask

    def _reserve(self, slots: int) -> None:
        have = 0 if self._cache is None else self._cache.shape[3]
        if slots > have or self._cache is None:
            bigger = self.model.new_slots(-(-max(slots, 2 * have, 1) // STEP) * STEP)
            if self._cache is not None:
                bigger[:, :, :, :have] = self._cache
            self._cache = bigger

    def _gather(self, past: int, rows: list[int]) -> None:
        with torch.inference_mode():
            kept = self.slots.index_select(
                3, torch.tensor([past + row for row in rows], device=self.model.device)
            )
            self.slots[:, :, :, past : past + len(rows)] = kept

    def close(self) -> None:
        """Free the KV cache."""
        super().close()
        self._cache = None


CompiledLanes = Sequence[tuple[LlamaTarget, Rows, SequenceRows]]


def run_compiled_layers(
    model: Llama, lanes: CompiledLanes, x: Tensor, first: int, end: int, logits: Tensor | None = None
) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Run layers first..end over the rows of all lanes, whose states x [rows, hidden] are in order. Return
    the states after them and each lane's captured ones. logits [rows, outputs], if given, receives the
    logits of the last rows.

    A lane: (target, rows, the rows as the compiled pass reads them). One compiled call runs all layers, or
    those between two layers whose input is replaced in a row.
    """
    sequences = [sequence for _, _, sequence in lanes]
    cuts = {entry.layer for _, rows, _ in lanes for entry in rows.tree.inputs if first <= entry.layer < end}
    starts = sorted({first} | cuts)
    names = {name for target, _, _ in lanes for name in target._want if name.startswith("layer:")}
    wanted = sorted(int(name.removeprefix("layer:")) for name in names)
    skipped = lanes[0][0].skip
    captured: dict[int, Tensor] = {}
    for start, stop in zip(starts, [*starts[1:], end]):
        if start in cuts:
            x = _with_entries(model, lanes, start, x)
        mine = {i: torch.empty(len(x), model.compiled_width) for i in wanted if start <= i < stop}
        x = model.run_compiled(sequences, x, start, stop, skipped, mine, logits if stop == end else None)
        captured |= mine
    states = {f"layer:{i}": model.to_checkpoint(captured[i][:, : model.hidden]) for i in sorted(captured)}
    found, at = [], 0
    for target, rows, _ in lanes:
        part = slice(at, at + len(rows.ids))
        found.append({name: kept[part] for name, kept in states.items() if name in target._want})
        at += len(rows.ids)
    return x, found


def run_compiled(
    model: Llama, lanes: CompiledLanes, x: Tensor, first: int, last: int
) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Run all layers from ``first`` on over the rows of all lanes, and the output matrix over the ``last``
    ones. Return their logits and each lane's captured states; arguments as in ``run_compiled_layers``."""
    logits = torch.empty(last, model.compiled_outputs)
    x, states = run_compiled_layers(model, lanes, x, first, model.layers, logits)
    if any("final" in target._want for target, _, _ in lanes):
        final = model.final_states(model.norm_output(x))
        at = 0
        for (target, rows, _), found in zip(lanes, states):
            if "final" in target._want:
                found["final"] = final[at : at + len(rows.ids)]
            at += len(rows.ids)
    return model.compiled_logits(logits), states


def _with_entries(model: Llama, lanes: CompiledLanes, layer: int, x: Tensor) -> Tensor:
    """Return the states that enter a layer, with replaced ones in their rows."""
    x, at = x.clone(), 0
    for _, rows, _ in lanes:
        for entry, where in rows.entries(layer):
            mine = x[at : at + len(rows.ids)]
            made = model.from_checkpoint(entry.make(model.to_checkpoint(mine)).to(x.dtype))
            mine.index_copy_(0, torch.tensor(where), made)
        at += len(rows.ids)
    return x


@lru_cache(maxsize=512)
def _tile(shape: Shape, group: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the part of a mask over the draft rows, repeated for the queries of a group: [group * rows,
    draft rows]."""
    tile = torch.zeros(shape.sees.shape, dtype=dtype).masked_fill_(~shape.sees, -torch.inf)
    return to_device(tile.repeat(group, 1), device)
