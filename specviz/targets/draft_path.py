"""Draft passes of a target through a second path (models/draft_path.py): rows after the text run with
changed matrices over the target's own KV cache. Nothing of them is kept: their keys and values are in draft
rows, which the next pass overwrites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..core import DraftTree
from ..core.errors import InvalidUse
from ..models.draft_path import DraftPath
from ..models.llama import Block, Llama
from .rows import Rows, Shape, shape_of

_blocks: WeakKeyDictionary[DraftPath, WeakKeyDictionary[Llama, list[Block]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class BlockRows(Rows):
    """The rows of a draft pass: the root and a chain. both: all rows attend to each other in both
    directions."""

    both: bool = False

    @property
    def causal_chain(self) -> bool:
        """Whether every row sees all rows before it, and no other."""
        return self.chain and not self.both

    @cached_property
    def shape(self) -> Shape:
        """The attention mask of these rows."""
        causal = shape_of(self.tree.parents, self.lo)
        return replace(causal, sees=torch.ones_like(causal.sees), all_seen=True) if self.both else causal


def block_rows(target: Any, path: DraftPath, tokens: Sequence[int]) -> BlockRows:
    """Return the rows of the root and ``tokens`` after a target's committed tokens. Drops the target's
    draft rows. Raises InvalidUse before the first sync."""
    if target.root is None:
        raise InvalidUse("a draft path before sync(): there is no root", "target.not_synced")
    target.flush()
    target.drop_draft_rows()
    tree = DraftTree.chain(tuple(tokens))
    return BlockRows(tree, [target.root, *tokens], len(target.cached_tokens), 0, False, path.both)


class GatedLowRank:
    """A linear layer with a low-rank change for rows from ``first`` on: y = base(x) + up^T down x; earlier
    rows are unchanged. x [rows, in]."""

    def __init__(self, base: Any, down: Tensor, up: Tensor, first: int):
        self.base = base
        self.down = down.t().contiguous()
        self.up = up.t().contiguous()
        self.first = first

    def __call__(self, x: Tensor) -> Tensor:
        return self._changed(self.base(x), x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual plus the layer's output."""
        return self._changed(self.base.add(x, residual), x)

    def _changed(self, y: Tensor, x: Tensor) -> Tensor:
        y[self.first :] += (x[self.first :] @ self.down) @ self.up
        return y


class LlamaDraftPath:
    """Draft passes of a target of the Llama family through a DraftPath."""

    def __init__(self, target: Any, path: DraftPath):
        self._target, self._path = target, path
        made = _blocks.setdefault(path, WeakKeyDictionary())
        if target.model not in made:
            with torch.inference_mode():
                made[target.model] = [
                    _block(target.model, i, block, path) for i, block in enumerate(target.model.blocks)
                ]
        self._blocks = made[target.model]

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return the logits [1 + tokens, vocab] of the root and the tokens after it, run as one block."""
        target, model = self._target, self._target.model
        rows = block_rows(target, self._path, tokens)
        with target.timed():
            # A compiled pass runs the rows that the path does not change, so that they have the target's bits.
            apart = self._path.first if model.compiled is not None and not self._path.both else 0
            apart = min(apart, len(rows.ids))
            found = [target._forward(_first_rows(rows, apart))[0]] if apart else []
            if apart < len(rows.ids):
                found.append(self._changed(replace(rows, ids=rows.ids[apart:], lo=apart)))
            return torch.cat(found)

    def _changed(self, rows: BlockRows) -> Tensor:
        """Return the logits of the rows through the changed layers."""
        target, model = self._target, self._target.model
        x, rotation = target._embed(rows), target._rotation(rows)
        mask, slots = None if self._path.both else target._mask(rows), target.slots_in_order()
        at = rows.past + rows.lo
        for block, own in zip(self._blocks, slots):
            x = model.transform(block, model.attend(block, x, rotation, own, at, mask))
        return model.output(model.norm_output(x))


def _first_rows(rows: BlockRows, count: int) -> BlockRows:
    """Return the first ``count`` rows of a block alone."""
    return replace(rows, tree=DraftTree.chain(tuple(rows.ids[1:count])), ids=rows.ids[:count])


def _block(model: Llama, layer: int, block: Block, path: DraftPath) -> Block:
    """Return a layer with the path's changes. Parts of one fused matrix are changed together."""
    made: dict[str, GatedLowRank] = {}
    first = 0 if model.compiled is not None and not path.both else path.first  # LlamaDraftPath.logits
    for name, parts in model.fused_parts.items():
        changes = [path.change(layer, part) for part in parts if part in path.parts]
        if changes:
            down = model.as_input(layer, name, torch.cat([down for down, _ in changes]).to(model.dtype))
            up = [model.as_output(part, up) for part, (_, up) in zip(parts, changes)]
            made[name] = GatedLowRank(
                getattr(block, name), down, torch.block_diag(*up).to(model.dtype), first
            )
    return replace(block, **made)
