"""Encode a picture as rows before the text: two linear layers and a learned position turn each patch of
pixels into one row (as LLaVA's projector, 2304.08485, but on raw patches instead of the output of a vision
transformer).

The rows are trained so that the language model's own output layer, applied to a row, gives the words for
what the patch shows (its caption); the layers then only have to copy them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORDS = ("patch", "columns", "rows", "inner")  # sizes of vision_config in config.json
MOST = 4096  # largest of them


class PatchEncoder(nn.Module):
    """Encoder of a picture's patches to rows of the language model, an nn.Module.

    patch: pixels of a patch's side; columns, rows: of the grid of patches; inner: width of the first layer;
    hidden: width of the model's rows.
    """

    def __init__(self, patch: int, columns: int, rows: int, inner: int, hidden: int):
        super().__init__()
        self.patch = patch
        self.columns = columns
        self.rows = rows
        self.enter = nn.Linear(3 * patch * patch, inner)
        self.leave = nn.Linear(inner, hidden)
        self.position_embed = nn.Parameter(torch.zeros(self.count, hidden))
        self.absent_embed = nn.Parameter(torch.zeros(self.count, hidden))

    @property
    def count(self) -> int:
        """Number of patches, which is the number of input embeddings of a picture."""
        return self.rows * self.columns

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture in pixels."""
        return self.columns * self.patch, self.rows * self.patch

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the input embeddings [n, count, hidden], one per patch, of pictures uint8 [n, height,
        width, 3]. They precede the text's token embeddings."""
        n, size = len(pictures), self.patch
        cut = (
            pictures.view(n, self.rows, size, self.columns, size, 3)
            .transpose(2, 3)
            .reshape(n, self.count, -1)
        )
        x = (cut.to(self.position_embed.dtype) - 255) / 128  # white, the usual ground, is 0
        return self.leave(F.gelu(self.enter(x))) + self.position_embed

    def absent(self) -> Tensor:
        """Return the learned rows [count, hidden] that stand for no picture."""
        return self.absent_embed


def label_scores(logits: Tensor, groups: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return, for each group of caption words, their logits [..., words], selected from the output layer's
    [..., vocab]. groups: token ids; -1 stands for "no word", whose logit is 0."""
    return [
        torch.stack([logits[..., i] if i >= 0 else torch.zeros_like(logits[..., 0]) for i in group], -1)
        for group in groups
    ]


def sizes_of(config: Any) -> dict[str, int] | None:
    """Return the encoder's sizes from a config's ``vision_config``; None if there is none or it is
    invalid."""
    found = config.get("vision_config")
    if not isinstance(found, dict):
        return None
    sizes: dict[str, int] = {
        name: found[name] for name in WORDS if type(found.get(name)) is int and 0 < found[name] <= MOST
    }
    return sizes if len(sizes) == len(WORDS) else None
