"""Place mask tokens after text positions, fewer at greater depth: the conditional drop-token rule of PARD
(2504.18583), also used by P-EAGLE.

A mask token at ``depth`` d stands for the unknown d-th token after its anchor, a position of the text. It
attends to the text up to the anchor and to the masks between, and predicts the token after its own
position. A mask is kept only if the mask before it is kept. ``back`` is 1 if a row of the input is a pair
(token, hidden state of the token before), so that the row of a position is one earlier; else 0."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from .features import Batch
from .masked_block import sample_anchors


@dataclass(frozen=True)
class Masks:
    """Positions and attention mask of a batch's mask tokens.

    depth [masks], from 1, the same for every row of text; place [rows, masks]: positions in the text; index
    [rows, masks]: indices into ``batch.where``, -1 after the end of the row's answer; mask, bool [rows, 1,
    n, n] with n = width + masks: True where a row may attend."""

    depth: Tensor
    place: Tensor
    index: Tensor
    mask: Tensor

    def at_depth(self, depth: int, width: int) -> tuple[Tensor, Tensor]:
        """Return the masks at one depth: (their flat row numbers [n] in [rows * (width + masks)], their
        indices [n] into ``batch.where``)."""
        rows, columns = ((self.depth == depth) & (self.index >= 0)).nonzero(as_tuple=True)
        return rows * (width + len(self.depth)) + width + columns, self.index[rows, columns]


def masks_after(batch: Batch, anchors: Tensor, kept: list[int], back: int) -> Masks:
    """Return the masks after anchors of a batch.

    anchors [rows, n]: indices into ``batch.where``; kept: for depth 1, 2, ... the number of anchors that
    have a mask there, always the first ones."""
    (rows, width), device = batch.ids.shape, batch.ids.device
    own = torch.cat([torch.arange(count) for count in kept] or [torch.arange(0)]).to(device)
    depth = torch.cat([torch.full((count,), i) for i, count in enumerate(kept, 1)] or [torch.arange(0)]).to(
        device
    )
    start = batch.where[anchors][:, own]  # [rows, masks]
    index = anchors[:, own] + depth
    inside = index < len(batch.where)
    inside &= batch.where[index.clamp(max=len(batch.where) - 1)] == start + depth
    text = torch.arange(width, device=device)
    seen = text <= (start % width - back)[:, :, None]  # [rows, masks, width]
    chain = (own == own[:, None]) & (depth <= depth[:, None])
    mask = torch.cat(
        [
            torch.cat(
                [(text <= text[:, None]).expand(rows, -1, -1), text.new_zeros(rows, width, len(own)).bool()],
                2,
            ),
            torch.cat([seen, chain.expand(rows, -1, -1)], 2),
        ],
        1,
    )
    return Masks(depth, start % width - back + depth, torch.where(inside, index, -1), mask[:, None])


def sample_masks(batch: Batch, hparams: dict, rng: random.Random, back: int) -> Masks:
    """Sample the masks of a training step. hparams: block (tokens drafted per pass), anchors (per row of
    text), keep (share of the masks of one depth that are followed by another), keep_least (smallest
    share)."""
    shares = (max(hparams["keep"] ** depth, hparams["keep_least"]) for depth in range(1, hparams["block"]))
    kept = [max(1, int(hparams["anchors"] * share)) for share in shares]
    return masks_after(batch, sample_anchors(batch, hparams["anchors"], rng), kept, back)


def all_masks(batch: Batch, block: int, back: int) -> Masks:
    """Return all masks of ``block`` drafted tokens after every answer position of a batch with one row."""
    anchors = torch.arange(len(batch.where), device=batch.ids.device)[None]
    return masks_after(batch, anchors, [anchors.shape[1]] * (block - 1), back)
