"""Target whose prompt begins with rows that are not tokens: the patches of a picture (2404.08856).

Keys and values of these rows are in the KV cache before the first token and never move. So the base class
compares, keeps, rewinds and commits tokens as if there were no picture; only slots and positions are
shifted here.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checkpoints.weights import ModelError, Weights
from ..core import DraftTree
from ..models.llama import unsupported_reason as llama_unsupported_reason
from ..models.patch_encoder import PatchEncoder, label_scores, sizes_of
from .fast import FastModel
from .llama import LlamaTarget
from .rows import Rows

LABELS = 3  # groups of caption words: things, colours, sizes
WHY_NOT = "it reads no pictures: its config.json has no vision_config that is known here"


def unsupported_reason(config: dict[str, Any]) -> str | None:
    """Return why the forward pass with pictures cannot run a checkpoint with that config.json, as the end
    of a message; None if it can."""
    return WHY_NOT if _labels_of(config) is None else llama_unsupported_reason(config)


def _labels_of(config: dict[str, Any]) -> list[list[int]] | None:
    """Return the token ids of each group of caption words, -1 for no word; None where they or the encoder's
    sizes cannot be read."""
    if sizes_of(config) is None:
        return None
    found, vocab = config["vision_config"].get("labels"), config.get("vocab_size")
    groups = found if isinstance(found, list) and len(found) == LABELS else []
    good = groups and all(isinstance(group, list) and 0 < len(group) <= 1024 for group in groups)
    return (
        groups
        if good and all(type(i) is int and -1 <= i < (vocab or 0) for group in groups for i in group)
        else None
    )


class VisionModel(FastModel):
    """Weights of a Hugging Face folder with a patch encoder; ``open()`` returns targets that share them.
    context: longest text in tokens, not counting the picture's rows."""

    def _load(self, weights: Weights) -> None:
        super()._load(weights)
        sizes, labels = sizes_of(self.config), _labels_of(self.config)
        if sizes is None or labels is None:
            raise ModelError(f"{self.name}: {WHY_NOT}", "forward.unsupported")
        self.labels, self.caption_token = labels, int(self.config["vision_config"].get("caption", 0))
        self.vision = PatchEncoder(**sizes, hidden=self.hidden)
        state = {
            name: weights.get(f"vision.{name}", *tensor.shape)
            for name, tensor in self.vision.state_dict().items()
        }
        self.vision.load_state_dict(state, assign=True)
        self.parameters = weights.count
        self.context -= self.vision.count
        if self.context < 1:
            raise ModelError(f"a picture fills the whole context of {self.name}", "config.sizes")

    @property
    def positions(self) -> int:
        """Number of positions, of tokens and of a picture's rows."""
        return self.context + self.vision.count

    def encode_picture(self, pixels: np.ndarray) -> tuple[Tensor, tuple[int, ...]]:
        """Encode a picture, uint8 [height, width, 3]: return its rows [count, hidden] and the token ids of
        its caption, with size, colour and kind of each thing that a patch shows."""
        with torch.inference_mode():
            rows = self.vision(torch.from_numpy(pixels.copy())[None].to(self.device))[0]
            scores = label_scores(self.head(self.norm_final(rows.to(self.dtype))), self.labels)
        thing, colour, size = (group.argmax(-1).tolist() for group in scores)
        things, colours, sizes = self.labels
        words = [
            token
            for i, one in enumerate(thing)
            if one < len(things) - 1
            for token in (sizes[size[i]], colours[colour[i]], things[one])
            if token >= 0
        ]
        return rows, (self.caption_token, *words) if words else ()

    def open(self) -> VisionTarget:
        """Return a target with a KV cache of its own over these weights."""
        return VisionTarget(self)


class VisionTarget(LlamaTarget):
    """Target with the KV cache of one run over shared weights. The first cached rows are those of a
    picture, or learned ones for no picture."""

    model: VisionModel

    def __init__(self, model: VisionModel):
        super().__init__(model)
        self._picture = model.vision.absent()
        self._placed = False  # whether the cache holds the picture's rows

    def set_picture(self, pixels: np.ndarray) -> None:
        """Set the picture, uint8 [height, width, 3] of the encoder's size, that is read before every text
        from now on. Drops the KV cache."""
        self.close()
        self._picture, self.caption = self.model.encode_picture(pixels)
        self.prefix_id = hashlib.sha256(pixels.tobytes()).hexdigest()

    @property
    def prefix(self) -> int:
        """Number of cached rows before the first token: those of the picture."""
        return len(self._picture)

    def close(self) -> None:
        """Free the KV cache; the picture stays set."""
        super().close()
        self._placed = False

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        self._place_picture()
        return super()._forward(replace(rows, past=rows.past + self.prefix))

    def _gather(self, past: int, rows: list[int]) -> None:
        super()._gather(past + self.prefix, rows)

    def _place_picture(self) -> None:
        """Run the picture's rows into the first slots of the cache, once."""
        if self._placed:
            return
        rows = Rows(DraftTree.chain((0,) * (self.prefix - 1)), [0] * self.prefix, 0, 0, True)
        self._reserve(self.prefix)
        self._layers(rows, self.model.from_checkpoint(self._picture), 0, self.layers)
        self._placed = True
