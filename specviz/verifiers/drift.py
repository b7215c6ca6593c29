"""How far a lossy rule strays from the target's distribution, in nats."""
from __future__ import annotations

import torch
from torch import Tensor


def divergence(p: Tensor, e: Tensor) -> float:
    """KL(p, e) in nats of two laws [vocab]; where e is 0 though p is not, its smallest positive number stands in."""
    return max(0.0, float((p * (p / e.clamp(min=torch.finfo(e.dtype).tiny)).clamp(min=torch.finfo(p.dtype).tiny).log()).sum()))
