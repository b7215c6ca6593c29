"""DFlare's drafter: a block drafter whose layers each read their own mixture of the target's layers
(2606.02091).

A draft layer reads the captured target layers, weighted by a softmax over its row of
``layer_fusion_weights`` [draft layers, target layers] and normalised, instead of one projection for all
draft layers (DFlash's ``fc``). Keys and values of the text have projections of their own
(``k_proj_target``, ``v_proj_target``). Parameter names are those of the authors' code.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....models import masked_block
from ....models.eagle_layers import Sizes
from ....models.heads import TargetInfo
from ....models.masked_block import BlockAttention, BlockDrafter, BlockLayer, BlockNet


class TextAttention(BlockAttention):
    """Attention of a block's positions to the text and to each other, an nn.Module; keys and values of the
    text have projections of their own."""

    def __init__(self, sizes: Sizes, bias: bool = False):
        super().__init__(sizes, bias)
        self.k_proj_target, self.v_proj_target = (
            nn.Linear(sizes.hidden, sizes.kv_heads * sizes.head_dim, bias=bias) for _ in range(2)
        )

    @property
    def of_text(self) -> tuple[nn.Linear, nn.Linear]:
        """The projections to keys and values of the text."""
        return self.k_proj_target, self.v_proj_target


class TextLayer(BlockLayer):
    """A decoder layer of DFlare's block drafter, an nn.Module, with TextAttention."""

    attention = TextAttention


class DFlare(BlockDrafter):
    """DFlare's block drafter (2606.02091), an nn.Module: DFlash's, in which each layer reads its own
    mixture of the target's layers. config: that of a DFlash drafter."""

    layer = TextLayer

    def __init__(self, config: dict[str, Any], name: str = "the DFlare drafter"):
        super().__init__(config, name)
        del self.fc
        layers, read = len(self.layers), len(self.read_layers)
        favourites = (
            torch.arange(layers) * read // layers
        )  # as the authors begin: shallow layers read shallow ones
        self.layer_fusion_weights = nn.Parameter(2.0 * F.one_hot(favourites, read))

    def fused_text(self, states: Tensor) -> Tensor:
        """Return, for each draft layer, its mixture of the target's hidden states of the text, [draft
        layers, ..., hidden], before its norm. states [..., layers * hidden]: the captured target layers,
        concatenated."""
        shares = self.layer_fusion_weights.softmax(-1)
        return torch.einsum(
            "...th,dt->d...h", states.unflatten(-1, (len(self.read_layers), -1)), shares.to(states.dtype)
        )

    def text_rows(self, states: Tensor) -> list[Tensor]:
        return list(self.hidden_norm(self.fused_text(states)))

    @cached_property
    def fused(self) -> DFlareNet:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return DFlareNet(self)


class DFlareNet(BlockNet):
    """DFlare's layers in inference layout; keys and values of the text come from each layer's own mixture."""

    def __init__(self, head: DFlare):
        super().__init__(head, None)
        self.mixed = head.fused_text
        self.text = self.text.view(self.layers, -1, self.hidden)

    def keys_and_values(self, states: Tensor) -> Tensor:
        rows = torch.einsum("dnh,dkh->ndk", self.after_fc(self.mixed(states)), self.text).flatten(1)
        return rows if self.text_bias is None else rows + self.text_bias


def build(target: TargetInfo, hparams: dict[str, Any]) -> DFlare:
    """Return an untrained block drafter for a target. hparams: those of a DFlash drafter."""
    return cast(DFlare, masked_block.build(target, hparams, DFlare))


def load(folder: Path, target: TargetInfo) -> DFlare:
    """Load the block drafter of a checkpoint folder. Raises ModelError."""
    return cast(DFlare, masked_block.load(folder, target, DFlare))
