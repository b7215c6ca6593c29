"""Target with the KV cache of one run over shared weights of the Llama family: one tensor, and a tree
attention mask for draft trees.

The cache is allocated on first use and grows in steps. Base class of targets (fast.py) and of their views
(layer_views.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..core import DraftTree, LazyScalar, to_device, token_tensor
from ..models.llama import Llama
from .base import CachedTarget
from .rows import LARGE, Rows, Shape

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

    # --- the primitives --------------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        model = self.model
        x, first = self._start(rows)
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
        at, n = rows.past + rows.lo, len(rows.ids)
        if n == 1 and rows.lo == 0 or rows.chain and rows.past + len(rows.tree) < self.model.positions:
            return self.model.rotations(at + n)[at : at + n]
        table = self.model.rotations(rows.past + len(rows.tree) + 1)
        return table[
            to_device((rows.shape.depth + rows.past).clamp_(max=self.model.positions - 1), self.model.device)
        ]

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
        if self.model.shared_cache is not None:
            self.model.shared_cache.forget(self)


@lru_cache(maxsize=512)
def _tile(shape: Shape, group: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the part of a mask over the draft rows, repeated for the queries of a group: [group * rows,
    draft rows]."""
    tile = torch.zeros(shape.sees.shape, dtype=dtype).masked_fill_(~shape.sees, -torch.inf)
    return to_device(tile.repeat(group, 1), device)
