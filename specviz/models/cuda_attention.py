"""Choice of the attention kernel on CUDA."""

from __future__ import annotations

import torch


def disable_cudnn_attention(device: torch.device) -> None:
    """Switch off cuDNN's attention if the device is CUDA. cuDNN makes a new plan for every sequence length,
    and one plan was measured to take longer than many forward passes; the other kernels need no plan."""
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
