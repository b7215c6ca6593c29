"""Keep the attention of a trained head from collapsing: limit its scores during training, and measure its
entropy.

Updates by Muon have the same size for every matrix, whatever the gradients. Without a norm before the
attention, as in EAGLE's head, the scores of queries and keys then grow until one position gets all the
weight and the head ignores its context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from ..models.eagle_layers import Attention

EVERY = 8  # steps between two looks at the scores


def rows_of(model: nn.Module, run: Callable[[], object]) -> list[tuple[Attention, Tensor, Tensor]]:
    """Call ``run`` and record the inputs of the model's attention modules. Return, in order of first use,
    (module, its input hidden states [batch, n, hidden], its rotary angles)."""
    met: dict[nn.Module, tuple[Tensor, Tensor]] = {}
    hooks = [
        part.register_forward_pre_hook(lambda part, given: met.setdefault(part, given[:2]) and None)
        for part in model.modules()
        if isinstance(part, Attention)
    ]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return [(cast(Attention, part), *given) for part, given in met.items()]


def limit_scores(model: nn.Module, run: Callable[[], object], step: int, hparams: dict) -> None:
    """Scale query and key weights down every few steps, so that no attention score during ``run`` exceeds
    the recipe's ``score_limit``. The result depends on weights and step only."""
    if step % EVERY == 0:
        for part, rows, _ in rows_of(model, run):
            part.limit_scores(rows, hparams["score_limit"])


def entropy(model: nn.Module, run: Callable[[], object]) -> float | None:
    """Return the mean entropy of the attention weights as a share of its maximum: 0 means that one position
    gets all the weight, 1 that all get the same. None if the model has no self-attention (M2R2)."""
    shares = []
    for part, rows, angles in rows_of(model, run):
        weights = part.weights(rows.float(), angles)[..., 1:, :]  # the first row attends to one position only
        most = torch.arange(2, rows.shape[-2] + 1, device=rows.device).log()
        shares.append(float((-torch.special.xlogy(weights, weights).sum(-1) / most).mean()))
    return round(sum(shares) / len(shares), 4) if shares else None
