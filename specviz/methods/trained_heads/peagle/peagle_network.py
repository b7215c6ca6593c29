"""P-EAGLE's draft head: EAGLE-3's layers draft a whole block in one pass (P-EAGLE, 2026; as in
"speculators" and vLLM).

The last pair of token and hidden states is followed by positions with a mask token instead of the token and
a learned state ``mask_hidden`` instead of the hidden states. The i-th mask position (from 0) predicts the
token i + 1 positions after the one that the last true pair predicts. Published heads have an embedding of
their own; this project's use the target's.

``load`` reads the layout of "speculators": EAGLE-3's names, ``mask_hidden``, and in config.json
``mask_token_id`` (``ptd_token_id`` or ``pard_token`` with other publishers).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.eagle import config_like
from ....models.eagle3 import VERIFIER, Eagle3, Eagle3Layer, Eagle3Net, Eagle3Rows, default_layers, read
from ....models.eagle_layers import angles_of
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill

MASKS = ("mask_token_id", "ptd_token_id", "pard_token")  # names of the mask token in config.json


class PEagle(Eagle3):
    """P-EAGLE's draft head, an nn.Module: EAGLE-3's, with mask positions that predict all tokens of a draft
    in one pass.

    config: as Eagle3's, with mask_token_id and own_embedding."""

    def __init__(self, config: dict[str, Any], name: str = "the P-EAGLE head"):
        super().__init__(config, name)
        token = next((config[key] for key in MASKS if config.get(key) is not None), None)
        if type(token) is not int or not 0 <= token < self.vocab:
            raise ModelError(
                f"config.json of {name} says mask_token_id is {str(token)[:40]}, none of {self.vocab} tokens",
                "peagle.mask_token_id",
            )
        d, self.mask_token = self.sizes.hidden, token
        self.mask_hidden = nn.Parameter(torch.randn(1, 1, len(self.read_layers) * d))
        self.embed_tokens = nn.Embedding(self.vocab, d) if config.get("own_embedding") else None

    def embed(self, ids: list[int], target_embed: Callable[[list[int]], Tensor]) -> Tensor:
        """Return the embeddings [n, hidden] of token ids, from the head's own table or the target's
        (``target_embed``)."""
        if self.embed_tokens is None:
            return target_embed(ids)
        return F.embedding(
            torch.as_tensor(ids, device=self.embed_tokens.weight.device), self.embed_tokens.weight
        )

    def forward(self, embeds: Tensor, states: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """Training: return hidden states [batch, n + masks, hidden] before the final norm. embeds [batch, n
        + masks, hidden]: of the text's tokens and the mask tokens; states [batch, n, layers * hidden]: of
        the target; places [batch, n + masks]: positions in the text; mask [batch, 1, n + masks, n + masks]:
        True where a position may attend."""
        masks = embeds.shape[1] - states.shape[1]
        x = torch.cat(
            [self.joined(states), self.joined(self.mask_hidden).expand(len(states), masks, -1)], 1
        ).to(embeds.dtype)
        angles = angles_of(self.config, self.sizes.head_dim, int(places.max()) + 1, embeds.device)[places][
            :, None
        ]
        x, _ = cast(Eagle3Layer, self.layers[0]).forward_pair(embeds, x, angles, None, mask)
        for layer in self.layers[1:]:
            x, _ = layer(x, angles, None, mask)
        return self.norm(x) if self.norm_output else x

    @cached_property
    def fused(self) -> Eagle3Net:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return Eagle3Net(self)

    def open(self) -> MaskedPairs:
        """Return a KV cache over these weights for one run."""
        return MaskedPairs(self)


class MaskedPairs(Eagle3Rows):
    """KV cache of P-EAGLE's head for one run, over the text's pairs of token and hidden states; the mask
    positions after them are dropped after each pass."""

    def __init__(self, head: PEagle):
        super().__init__(head)
        with torch.inference_mode():
            self.state = self.net.joined(head.mask_hidden[0].detach())

    def block(self, embeds: Tensor, states: Tensor, mask: Tensor, masks: int) -> Tensor:
        """Append n pairs of the text and run ``masks`` mask positions after them in the same pass. Return
        the hidden states [1 + masks, hidden] of the last pair and of the mask positions. embeds [n,
        hidden], states [n, layers * hidden]: of the pairs; mask [1, hidden]: the mask token's embedding."""
        kind = self.net.dtype
        pairs = torch.cat([embeds.to(kind), self.net.joined(states.to(kind))], -1)
        empty = torch.cat([mask.to(kind), self.state], -1).expand(masks, -1)
        return super(Eagle3Rows, self).read(torch.cat([pairs, empty]), passing=masks)[-1 - masks :]


def build(target: TargetInfo, hparams: dict[str, Any]) -> PEagle:
    """Return an untrained head for a target, whose embedding and output matrix it uses. hparams, all
    optional: mask_token, read_layers, layers, heads, kv_heads, head_dim, intermediate, qk_norm."""
    settings = {
        "read_layers": list(hparams.get("read_layers") or default_layers(target.layers)),
        "mask_token_id": hparams.get("mask_token", 0),
        "own_head": False,
        "qk_norm": bool(hparams.get("qk_norm")),
    }
    return PEagle({**config_like(target, hparams), **settings}, f"the P-EAGLE head of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> PEagle:
    """Load the head of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "peagle")
    weights = HeadWeights(folder, target)
    if "mask_hidden" not in weights:
        raise ModelError(
            f"{folder.name} has no mask_hidden: it was not taught to draft in one pass, and its kind is eagle3",
            "peagle.mask_hidden",
        )
    config, found = read(weights, config_of(folder), target)
    size = len(config["read_layers"]) * target.hidden
    stored = weights.get("mask_hidden", *weights.shape("mask_hidden"))
    if stored.numel() != size:
        raise ModelError(
            f"mask_hidden of {folder.name} has {stored.numel()} numbers; the states that it stands for have {size}",
            "peagle.mask_hidden_size",
        )
    found["mask_hidden"] = stored.view(1, 1, size)
    if "embed_tokens.weight" in weights:
        found["embed_tokens.weight"] = weights.get("embed_tokens.weight", target.vocab, target.hidden)
    weights.check_none_unread(*VERIFIER)
    return fill(
        PEagle(config | {"own_embedding": "embed_tokens.weight" in found}, folder.name), found, target
    )
