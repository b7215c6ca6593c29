"""Speculative cascades: verification against a mixture of draft and target instead of the target
(Narasimhan et al. 2405.19261).

The rule is lossy; the divergence from the target is recorded as drift.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..core import IID, Decision, DraftTree, State
from .drift import kl_divergence
from .lenience import Lenient
from .token_rejection import TokenRejection


def cascade(p: Tensor, q: Tensor, alpha: float) -> Tensor:
    """Return the token-wise cascade of target p and draft q, a distribution [vocab]. A drafted token v is
    kept if p(v) >= (1 - alpha) max p, otherwise the token is sampled from p: pi(v) = q(v) [v kept] + p(v) *
    (sum of q over the tokens not kept)."""
    kept = p >= (1 - alpha) * p.max()
    return torch.where(kept, q, torch.zeros_like(q)) + p * q.masked_fill(kept, 0.0).sum()


class CascadeRejection(Lenient):
    """Lossy verifier: token rejection against the cascade pi (``cascade``) instead of the target
    (Narasimhan et al. 2405.19261).

    A draft token x ~ q is accepted with probability min(1, pi(x) / q(x)); after a rejection the correction
    is sampled from norm((pi - q)+). The output distribution is pi. At temperature 0 a token is accepted iff
    p(x) >= (1 - alpha) max p."""

    title = "cascade (lossy)"

    def __init__(self, alpha: float = 0.3):
        super().__init__(1 - alpha)
        self.alpha = alpha

    def test(self, tree: DraftTree, child: int, p: Tensor, state: State) -> Decision:
        x, q = tree.tokens[child], tree.draft_probs(child)
        q = (
            torch.zeros_like(p).index_fill_(0, torch.tensor([x], device=p.device), 1.0)
            if q is None
            else q.to(p)
        )
        mixed = cascade(p, q, self.alpha)
        self._drift.append(kl_divergence(p, mixed))
        decision = TokenRejection.test(
            self,
            tree if tree.draft_probs(child) is not None else _one_hot(tree, child, q),
            child,
            mixed,
            state,
        )
        return replace(decision, rule="lenient", target_prob=float(p[x]), probs=p)


def _one_hot(tree: DraftTree, child: int, q: Tensor) -> DraftTree:
    """Return the tree with a deterministic node as a sample of its one-hot distribution."""
    rows = q[None] if tree.probs is None else torch.cat([tree.probs, q[None].to(tree.probs)])
    draw = tuple(len(rows) - 1 if i == child else k for i, k in enumerate(tree.draw))
    return replace(tree, probs=rows, draw=draw, drawn=(*tree.drawn, IID))
