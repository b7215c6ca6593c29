"""Rows of mask tokens after places of a text, fewer the further ahead they stand: the conditional drop-token of PARD
(2504.18583), which P-EAGLE trains with, too.

A mask ``depth`` places after its anchor stands for a token that is not known yet. It sees the text up to the anchor, and the
masks between; it is to say what follows there. A mask is only kept where the one before it is. Where a row reads pairs of a token
and the state before it, the row of a place lies one earlier: ``back`` is 1.
"""
from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from .features import Batch
from .masked_block import drawn


@dataclass(frozen=True)
class Masks:
    """Where the mask tokens of a batch stand and what they see.

    depth [masks] from 1 on, of every row of text alike; place [rows, masks] in the text; index [rows, masks] into
    ``batch.where``, -1 where the row's answer has ended; mask [rows, 1, width + masks, width + masks], True where a row may
    look."""

    depth: Tensor
    place: Tensor
    index: Tensor
    mask: Tensor

    def at(self, depth: int, width: int) -> tuple[Tensor, Tensor]:
        """Return (rows [n] in the flat [rows * (width + masks)], indices [n] into ``batch.where``) of masks at this depth."""
        rows, columns = ((self.depth == depth) & (self.index >= 0)).nonzero(as_tuple=True)
        return rows * (width + len(self.depth)) + width + columns, self.index[rows, columns]


def masks(batch: Batch, anchors: Tensor, kept: list[int], back: int) -> Masks:
    """Return the masks that follow anchors in the text.

    anchors [rows, n]: indices into ``batch.where``; kept: how many of them, the first ones, have a mask at depth 1, 2, ..."""
    (rows, width), device = batch.ids.shape, batch.ids.device
    own = torch.cat([torch.arange(count) for count in kept] or [torch.arange(0)]).to(device)
    depth = torch.cat([torch.full((count,), i) for i, count in enumerate(kept, 1)] or [torch.arange(0)]).to(device)
    start = batch.where[anchors][:, own]  # [rows, masks]
    index = anchors[:, own] + depth
    inside = index < len(batch.where)
    inside &= batch.where[index.clamp(max=len(batch.where) - 1)] == start + depth
    text = torch.arange(width, device=device)
    seen = text <= (start % width - back)[:, :, None]  # [rows, masks, width]
    chain = (own == own[:, None]) & (depth <= depth[:, None])
    mask = torch.cat([torch.cat([(text <= text[:, None]).expand(rows, -1, -1), text.new_zeros(rows, width, len(own)).bool()], 2),
                      torch.cat([seen, chain.expand(rows, -1, -1)], 2)], 1)
    return Masks(depth, start % width - back + depth, torch.where(inside, index, -1), mask[:, None])


def dropped(batch: Batch, numbers: dict, rng: random.Random, back: int) -> Masks:
    """Those of a training step. numbers: block (tokens a pass drafts), anchors (a row of text), keep (share of the masks of one
    depth that have one after them), keep_least."""
    shares = (max(numbers["keep"] ** depth, numbers["keep_least"]) for depth in range(1, numbers["block"]))
    kept = [max(1, int(numbers["anchors"] * share)) for share in shares]
    return masks(batch, drawn(batch, numbers["anchors"], rng), kept, back)


def every(batch: Batch, block: int, back: int) -> Masks:
    """All masks after every place of an answer, for a batch of one row."""
    anchors = torch.arange(len(batch.where), device=batch.ids.device)[None]
    return masks(batch, anchors, [anchors.shape[1]] * (block - 1), back)
