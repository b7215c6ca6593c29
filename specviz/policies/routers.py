"""Routers between a small and a large model (FS-GEN, Zhang et al. 2406.12295): decide from the small
model's distribution whether the large model is used at a position. A router maps distributions [rows,
vocab] to booleans [rows]."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..core import Policy
from .fixed import Fixed
from .stop_when import StopWhen

Router = Callable[[Tensor], Tensor]


def always(distributions: Tensor) -> Tensor:
    """Use the large model at every position."""
    return torch.ones(len(distributions), dtype=torch.bool, device=distributions.device)


def top1_below(limit: float = 0.5) -> Router:
    """Return a router that uses the large model where the small model's top-1 probability is below
    ``limit``."""
    return lambda distributions: distributions.amax(-1) < limit


def margin_below(limit: float = 0.2) -> Router:
    """Return a router that uses the large model where half the gap between the small model's top two
    probabilities is below ``limit``."""

    def router(distributions: Tensor) -> Tensor:
        best = distributions.topk(2, dim=-1).values
        return (best[:, 0] - best[:, 1]) / 2 < limit

    return router


ROUTERS: dict[str, Router] = {"always": always, "max probability": top1_below(), "delta": margin_below()}


def routing_policy(router: str, gamma: int) -> Policy:
    """Return a policy that drafts up to gamma tokens with the small model and stops after the first
    position that is routed to the large model. At the positions before it the output distribution is the
    small model's, so their tokens are always accepted.

    router: a key of ROUTERS."""
    route = ROUTERS[router]
    return Fixed(gamma) if route is always else StopWhen(gamma, lambda step: bool(route(step.probs[None])[0]))
