"""Divergences between the draft's and the target's distribution, as distillation losses.

Each function takes the log-probabilities of target and draft, [n, outcomes], and returns (value [n],
gradient [n, outcomes] with respect to the draft's log-probabilities). An outcome is one token, or all
tokens outside the target's stored top tokens together.

``tvdpp`` is a policy gradient (direct alignment, Goel et al. 2403.00858): a token is sampled from the
draft, its reward is 1 if the target finds it more probable than the draft does, and rewards are normalised
over the positions. Its expected gradient is that of the total variation divided by the rewards' standard
deviation; the returned value is the total variation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Divergence = Callable[..., tuple[Tensor, Tensor]]


def forward_kl(logp: Tensor, logq: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Return KL(target || draft)."""
    p = logp.exp()
    return (p * (logp - logq)).sum(-1), -p


def reverse_kl(logp: Tensor, logq: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Return KL(draft || target)."""
    q, gap = logq.exp(), logq - logp
    return (q * gap).sum(-1), q * (gap + 1)


def jensen_shannon(logp: Tensor, logq: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Return the Jensen-Shannon divergence: the mean KL divergence of both distributions from their
    average."""
    p = logp.exp()
    q = logq.exp()
    middle = torch.logaddexp(logp, logq) - math.log(2)
    return ((p * (logp - middle)).sum(-1) + (q * (logq - middle)).sum(-1)) / 2, q * (logq - middle) / 2


def total_variation(logp: Tensor, logq: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Return the total variation distance, which is the probability that a draft token is rejected."""
    p, q = logp.exp(), logq.exp()
    return (p - q).abs().sum(-1) / 2, -q * (p - q).sign() / 2


def tvdpp(logp: Tensor, logq: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Return (total variation distance [n], gradient of the TVD++ policy-gradient loss for one token
    sampled from the draft)."""
    drawn = torch.multinomial(logq.exp(), 1, generator=rng)
    reward = (logp.gather(1, drawn) > logq.gather(1, drawn)).to(logq.dtype)
    advantage = (reward - reward.mean()) / reward.std(correction=0).clamp(min=1e-3)
    return total_variation(logp, logq)[0], torch.zeros_like(logq).scatter_(1, drawn, -advantage)


NAMED: dict[str, Divergence] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jensen_shannon": jensen_shannon,
    "total_variation": total_variation,
    "tvdpp": tvdpp,
}
