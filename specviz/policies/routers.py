"""When two models share the work, whether the large one is asked about a place (FS-GEN, Zhang et al. 2406.12295): decided by the small
model's law there. A router is a function of laws [rows, vocab] -> [rows] of bool."""
from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from ..core import Policy
from .fixed import Fixed
from .until import Until

Router = Callable[[Tensor], Tensor]


def always(distributions: Tensor) -> Tensor:
    return torch.ones(len(distributions), dtype=torch.bool, device=distributions.device)


def unsure(limit: float = 0.5) -> Router:
    """Asked where the best token has less than ``limit``."""
    return lambda distributions: distributions.amax(-1) < limit


def near(limit: float = 0.2) -> Router:
    """Asked where half the gap between the two best tokens is less than ``limit``."""
    def router(distributions: Tensor) -> Tensor:
        best = distributions.topk(2, dim=-1).values
        return (best[:, 0] - best[:, 1]) / 2 < limit
    return router


ROUTERS: dict[str, Router] = {"always": always, "max probability": unsure(), "delta": near()}


def drafting(router: str, gamma: int) -> Policy:
    """Drafts of up to gamma tokens, ending with the first one about which the large model is asked: elsewhere they pass anyway."""
    asked = ROUTERS[router]
    return Fixed(gamma) if asked is always else Until(gamma, lambda step: bool(asked(step.probs[None])[0]))
