"""LFM2's gated short convolution as a Mixer over the rows of a draft tree: its state is the last inputs of
the convolution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..checkpoints.weights import Weights
from .tree_rows import Mixer, RowPositions, TreeRows


@dataclass(frozen=True)
class ConvolutionRows(TreeRows):
    """Inputs of the convolution, [rows, hidden]: of the last kernel - 1 committed tokens, or of draft
    rows."""

    raw: Tensor


class ShortConvolutionMixer(Mixer):
    """A gated short convolution as a Mixer (tree_rows.py), with the weights under the ``prefix``
    ("...conv."): in_proj [3
    * hidden, hidden], conv [hidden, kernel], out_proj [hidden, hidden]."""

    def __init__(self, weights: Weights, prefix: str, hidden: int, kernel: int):
        self.kernel = kernel
        self.in_proj = weights.get(f"{prefix}in_proj.weight", 3 * hidden, hidden)
        self.in_bias = weights.get_optional(f"{prefix}in_proj.bias", 3 * hidden)
        self.conv = weights.get(f"{prefix}conv.weight", hidden, 1, kernel)[:, 0]
        self.conv_bias = weights.get_optional(f"{prefix}conv.bias", hidden)
        self.out_proj = weights.get(f"{prefix}out_proj.weight", hidden, hidden)
        self.out_bias = weights.get_optional(f"{prefix}out_proj.bias", hidden)

    def new_state(self) -> ConvolutionRows:
        """Return the state before any text: zeros."""
        return ConvolutionRows(self.conv.new_zeros(self.kernel - 1, len(self.conv)))

    def advance(self, state: ConvolutionRows, rows: ConvolutionRows, path: list[int]) -> ConvolutionRows:
        """Return the state after the accepted rows ``path``."""
        return ConvolutionRows(torch.cat([state.raw, rows.raw[path]])[len(path) :])

    def run(
        self, x: Tensor, state: ConvolutionRows, before: ConvolutionRows | None, place: RowPositions
    ) -> tuple[Tensor, ConvolutionRows]:
        """Return the outputs [n - lo, hidden] of draft rows lo..n, x [n - lo, hidden], and the
        convolution's inputs of all draft rows."""
        enter, leave, value = F.linear(x, self.in_proj, self.in_bias).chunk(3, -1)
        rows = ConvolutionRows(enter * value).after(before)
        window = torch.cat([state.raw, rows.raw])[place.taps_of(self.kernel)]  # [n - lo, kernel, hidden]
        mixed = torch.einsum("rkc,ck->rc", window, self.conv)
        mixed = mixed if self.conv_bias is None else mixed + self.conv_bias
        return F.linear(leave * mixed, self.out_proj, self.out_bias), rows
