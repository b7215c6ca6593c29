"""TorchScript for a few lines of ours: what Python pays for each call of torch is saved.

Above all for operations on packed weights, which Python wraps anew at each call (docs/log/speed.md).
"""
import warnings
from typing import Any, Callable

import torch
from torch import Tensor, nn


class Half(nn.Module):
    """y = x W^T + b of 16-bit weights as torch packs them; x [rows, in]."""

    def __init__(self, packed: Any):
        super().__init__()
        self.packed = packed

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed).add_(residual)


def widened(packed: Any) -> Callable[[Tensor], Tensor]:
    """``Half`` of these weights, by way of TorchScript where this torch has it."""
    try:
        return compiled(Half(packed)).forward
    except RuntimeError:
        return lambda x: torch.ops.quantized.linear_dynamic_fp16(x, packed)


def compiled(module: nn.Module) -> nn.Module:
    """A module as TorchScript. Raises what torch raises where it cannot be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch points to a successor that asks for a C++ compiler where this runs
        return torch.jit.script(module.eval())
