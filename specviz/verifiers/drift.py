"""Deviation of a lossy rule from the target's distribution, in nats."""

from __future__ import annotations

import torch
from torch import Tensor


def kl_divergence(p: Tensor, e: Tensor) -> float:
    """Return the Kullback-Leibler divergence KL(p || e) of two distributions [vocab], in nats; a zero of e
    counts as the smallest positive number."""
    return max(
        0.0,
        float(
            (
                p * (p / e.clamp(min=torch.finfo(e.dtype).tiny)).clamp(min=torch.finfo(p.dtype).tiny).log()
            ).sum()
        ),
    )
