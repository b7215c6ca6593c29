"""What a text that grows by a few rows a pass asks of torch on a graphics card."""
from __future__ import annotations

import torch


def any_length(device: torch.device) -> None:
    """Attention without cuDNN, which plans anew for every length it meets; seen on a card, a plan took longer than many passes. The
    other kernels take any length as it comes."""
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
