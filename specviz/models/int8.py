"""Int8 weights with one scale per row: W8A8, as in LLM.int8() (2208.07339) and SmoothQuant (2211.10438). The
products are in kernels/; models/compiled_linear.py has the layers."""

import torch
from torch import Tensor

MOST = 127  # the largest integer magnitude
LEAST = 1e-30  # lower bound of a row's maximum, so that a row of zeros has a step


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise a matrix per row: return int8 values [out, in] from -127 to 127 and float32 scales [out],
    with weight = values * scales approximately."""
    scales = weight.abs().amax(1).clamp_min(LEAST).float() / MOST
    return torch.round(weight / scales[:, None]).to(torch.int8), scales
