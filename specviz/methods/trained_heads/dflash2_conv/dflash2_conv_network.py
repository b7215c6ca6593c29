"""DFlash2's drafter: a block drafter with a convolution before and after the attention and the feed-forward
of each layer.

The convolution is causal within the block: a channel of a position becomes a weighted sum of the same
channel at the position itself and at the positions before it (zero before the first). A weight is a learned
constant (``base_kernel`` [2, taps, hidden], for the convolutions before and after) plus a number that
``kernel_projection`` computes from the position's normalised input, one for each group of
``conv_group_size`` channels. Parameter names are those of the published checkpoints."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models import masked_block
from ....models.heads import TargetInfo
from ....models.masked_block import BlockDrafter, BlockLayer, BlockNet


class BlockConvolution(nn.Module):
    """The weights of the two convolutions around one half of a layer, an nn.Module. taps: kernel size, in
    positions; group: number of channels that share a computed weight."""

    def __init__(self, hidden: int, taps: int, group: int):
        super().__init__()
        self.taps, self.group = taps, group
        self.base_kernel = nn.Parameter(torch.zeros(2, taps, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * taps * hidden // group, bias=False)
        nn.init.ones_(self.base_kernel[:, 0])  # untrained, it changes nothing
        nn.init.zeros_(self.kernel_projection.weight)

    def kernels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kernels of the convolutions before and after the half layer, each [..., taps, hidden],
        for its normalised input x [..., hidden]."""
        made = (
            self.kernel_projection(x).unflatten(-1, (2, self.taps, -1)).repeat_interleave(self.group, -1)
            + self.base_kernel
        )
        return made[..., 0, :, :], made[..., 1, :, :]


def convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """Convolve blocks x [..., positions, hidden] along their positions, with a kernel for each position
    [..., positions, taps, hidden]."""
    out = kernel[..., 0, :] * x
    for tap in range(1, min(kernel.shape[-2], x.shape[-2])):
        out = out + F.pad(kernel[..., tap:, tap, :] * x[..., :-tap, :], (0, 0, tap, 0))
    return out


class ConvolutionLayer(BlockLayer):
    """A decoder layer of DFlash2's block drafter, an nn.Module, with convolutions around its attention and
    its feed-forward. block: positions of a block in training."""

    block: int
    attention_conv: BlockConvolution
    mlp_conv: BlockConvolution

    def across(self, x: Tensor, text: Tensor, angles: Tensor, text_angles: Tensor, mask: Tensor) -> Tensor:
        y, (before, after) = self._normed(x, self.input_layernorm, self.attention_conv)
        y = self.self_attn.across(convolved(y, before).flatten(1, 2), text, angles, text_angles, mask)
        x = x + convolved(y.unflatten(1, (-1, self.block)), after).flatten(1, 2)
        assert self.mlp is not None and self.post_attention_layernorm is not None  # a block layer has both
        y, (before, after) = self._normed(x, self.post_attention_layernorm, self.mlp_conv)
        return x + convolved(self.mlp(convolved(y, before)), after).flatten(1, 2)

    def _normed(
        self, x: Tensor, norm: nn.Module, conv: BlockConvolution
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return normalised blocks [batch, blocks, rows, hidden] of x [batch, blocks * rows, hidden], and
        their kernels."""
        y = norm(x).unflatten(1, (-1, self.block))
        return y, conv.kernels(y)


class DFlash2(BlockDrafter):
    """DFlash2's block drafter without its selector, an nn.Module. config: that of a DFlash drafter,
    conv_kernel_size and conv_group_size."""

    layer = ConvolutionLayer
    elsewhere = (r"candidate_selector\..*",)

    def __init__(self, config: dict[str, Any], name: str = "the DFlash2 drafter"):
        super().__init__(config, name)
        settings = {**config, **(config.get("dflash_config") or {})}
        try:
            taps, group = int(settings["conv_kernel_size"]), int(settings["conv_group_size"])
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        d = self.sizes.hidden
        if taps < 1 or group < 1 or d % group:
            raise ModelError(
                f"config.json of {name} gives convolutions that make no sense", "masked_block.config"
            )
        for layer in cast("list[ConvolutionLayer]", list(self.layers)):
            layer.block = self.block
            layer.attention_conv, layer.mlp_conv = (BlockConvolution(d, taps, group) for _ in range(2))

    @cached_property
    def fused(self) -> DFlash2Net:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return DFlash2Net(self)


class DFlash2Net(BlockNet):
    """DFlash2's layers in inference layout, with their convolutions."""

    def __init__(self, head: DFlash2):
        super().__init__(head, head.fc)
        self.convolutions = [
            (layer.attention_conv, layer.mlp_conv)
            for layer in cast("list[ConvolutionLayer]", list(head.layers))
        ]

    def run(
        self,
        x: Tensor,
        rotation: Tensor,
        slots: Tensor,
        at: int | Tensor,
        mask: Tensor | list[Tensor | None] | None,
    ) -> Tensor:
        masks = mask if isinstance(mask, list) else [mask] * len(self.blocks)
        for block, kept, own, (around_attention, around_mlp) in zip(
            self.blocks, slots, masks, self.convolutions
        ):
            y, none = block.norm_in(x), torch.zeros_like(x)
            before, after = around_attention.kernels(y)
            x = x + convolved(self.attend(block, none, rotation, kept, at, own, convolved(y, before)), after)
            y = block.norm_mlp(x)
            before, after = around_mlp.kernels(y)
            gate, up = block.gate_up(convolved(y, before)).chunk(2, -1)
            x = x + convolved(block.down.add(F.silu(gate) * up, none), after)
        return x


def build(target: TargetInfo, hparams: dict[str, Any]) -> DFlash2:
    """Return an untrained block drafter for a target. hparams: those of a DFlash drafter, conv_kernel_size,
    conv_group_size."""
    sizes = {key: hparams[key] for key in ("conv_kernel_size", "conv_group_size")}
    return cast(DFlash2, masked_block.build(target, hparams, DFlash2, **sizes))


def load(folder: Path, target: TargetInfo) -> DFlash2:
    """Load the block drafter of a checkpoint folder. Raises ModelError."""
    return cast(DFlash2, masked_block.load(folder, target, DFlash2))
