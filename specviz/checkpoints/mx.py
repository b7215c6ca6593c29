"""8-bit weights in MXINT8, of the OCP Microscaling Formats (MX) Specification 1.0; Rouhani et al. 2310.10537.

Blocks of 32 numbers of a row share a power-of-two scale; each number is an integer number of 64ths of it.
Dequantised values have seven bits and a sign, so they are exact in bfloat16 and float16. A tensor ``name``
of int8 comes with ``name.scale`` of uint8: the scales' exponents plus 127.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 32
SCALE = ".scale"
BIAS = 127
QUANTISED = {"quant_method": "mxint8"}  # of a whole model: the quantization_config in its config.json
WORTH = 2**14  # smallest matrix, in numbers, that is worth storing so


def is_large_matrix(tensor: Tensor) -> bool:
    """Return whether a tensor is a floating-point matrix large enough (WORTH numbers) to be stored in
    MXINT8."""
    return tensor.is_floating_point() and tensor.dim() > 1 and tensor.numel() >= WORTH


def quantise_mxint8(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise finite numbers [..., n]: return int8 elements [..., n] and uint8 exponents [..., ceil(n /
    32)]."""
    n = tensor.shape[-1]
    blocks = F.pad(tensor.detach().double(), (0, -n % BLOCK)).unflatten(-1, (-1, BLOCK))
    exponents = torch.frexp(blocks.abs().amax(-1))[1].sub(1).clamp(-BIAS, BIAS)
    elements = torch.ldexp(blocks, 6 - exponents[..., None]).round().clamp(-127, 127)
    return elements.to(torch.int8).flatten(-2)[..., :n].contiguous(), (exponents + BIAS).to(torch.uint8)


def dequantise_mxint8(elements: Tensor, exponents: Tensor) -> Tensor:
    """Return float32 values [..., n] of quantised ones; blocks with the exponent 255 become NaN."""
    n = elements.shape[-1]
    exponents = exponents.float()
    scales = torch.ldexp(torch.ones(()), exponents - BIAS - 6).masked_fill(exponents == 255, torch.nan)
    return elements.float() * scales.repeat_interleave(BLOCK, -1)[..., :n]


def to_file_tensors(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as they are written to a file: large matrices in MXINT8 with their scales, all others
    unchanged."""
    found: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if is_large_matrix(tensor):
            found[name], found[name + SCALE] = quantise_mxint8(tensor)
        else:
            found[name] = tensor
    return found


def from_file_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file written from ``to_file_tensors``; quantised ones in float32."""
    scales = {name for name in tensors if name.endswith(SCALE) and name.removesuffix(SCALE) in tensors}
    return {
        name: dequantise_mxint8(tensor, tensors[name + SCALE]) if name + SCALE in scales else tensor
        for name, tensor in tensors.items()
        if name not in scales
    }
