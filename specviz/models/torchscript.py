"""Compile modules with TorchScript, which removes the Python overhead per torch call.

The gain is largest for operations on packed weights, which Python wraps again on every call
(docs/log/2026-11/speed.md).
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .fallbacks import log_fallback

MOST_FROZEN = 24  # modules frozen in one process
MOST_FROZEN_BYTES = 2**30  # weights of the modules frozen in one process
_frozen = _frozen_bytes = 0  # so far


class HalfProducts(nn.Module):
    """A float16 linear layer as an nn.Module: y = x W^T + b with packed float16 weights; x [rows, in].
    packed_bytes: their size."""

    def __init__(self, packed: Any, packed_bytes: int):
        super().__init__()
        self.packed, self.packed_bytes = packed, packed_bytes

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b, [rows, out]."""
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed).add_(residual)


def fp16_product(packed: Any, packed_bytes: int) -> Callable[[Tensor], Tensor]:
    """Return the function x -> x W^T + b for packed float16 weights of that size, compiled if this torch
    can."""
    try:
        return scripted(HalfProducts(packed, packed_bytes)).forward
    except RuntimeError:
        log_fallback("TorchScript", "products run uncompiled")
        return lambda x: torch.ops.quantized.linear_dynamic_fp16(x, packed)


def scripted(module: nn.Module) -> nn.Module:
    """Return the module compiled with TorchScript. Raises the error of torch if it cannot be compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the deprecation names torch.compile, which needs a C++ compiler here
        return torch.jit.script(module.eval())


def weight_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's tensors and packed weights (``packed_bytes``), without parts that are
    compiled."""
    total = 0
    for part in module.modules():
        if isinstance(part, torch.jit.ScriptModule):
            continue
        values = (*vars(part).values(), *part._parameters.values(), *part._buffers.values())
        total += vars(part).get("packed_bytes", 0) + sum(
            value.nbytes for value in values if isinstance(value, Tensor)
        )
    return total


def frozen(module: nn.Module, size: int) -> nn.Module:
    """Return the compiled module with its weights as constants, which saves a twentieth of a pass on one
    row. size: bytes of its weights.

    torch keeps the types, graphs and weights of each frozen module for the rest of the process (the size of
    the model, and 1.3 MB a layer more), and they can only be dropped together with all compiled modules
    that are in use. So only the first modules of a process are frozen, up to MOST_FROZEN and
    MOST_FROZEN_BYTES; the others compute the same bits.
    """
    global _frozen, _frozen_bytes
    if _frozen >= MOST_FROZEN or _frozen_bytes + size > MOST_FROZEN_BYTES:
        return module
    _frozen, _frozen_bytes = _frozen + 1, _frozen_bytes + size
    return torch.jit.freeze(module, optimize_numerics=False)
