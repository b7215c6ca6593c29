"""Acceptance rates in closed form: the probability that a rule accepts one of k drafts at a position, and
the best possible rate of any rule.

p is the target's distribution, q the draft's, both [vocab]. The best rate is that of an optimal transport
between k drafts and p (Sun et al. 2310.15141): the minimum of p(H) + 1 - q(H)^k over sets H of tokens. The
best H holds the tokens with the largest q / p (Hu et al. 2502.18779), so one sort finds it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import IID, DraftTree, Scores, State


def single_draft_rate(p: Tensor, q: Tensor) -> float:
    """Return the acceptance rate of one draft token under token rejection, sum min(p, q); no rule accepts
    more (Leviathan et al. 2211.17192). p, q: target and draft distribution [vocab]."""
    return float(torch.minimum(p, q).sum())


def recursive_rejection_rate(p: Tensor, q: Tensor, k: int) -> float:
    """Return the probability that one of k drafts sampled independently from q [vocab] is accepted if they
    are tested one after the other, and p [vocab] is replaced by norm((p - q)+) after each rejection
    (SpecInfer 2305.09781)."""
    refused, p = 1.0, p.double()
    for _ in range(k):
        prob = single_draft_rate(p, q)
        refused *= 1 - prob
        p = (p - q).clamp(min=0)
        mass = float(p.sum())
        if mass <= 0:
            return 1.0
        p = p / mass
    return 1 - refused


def k_seq_rate(p: Tensor, q: Tensor, k: int, rho: float) -> float:
    """Return the probability that K-SEQ with parameter rho accepts one of k drafts sampled independently
    from q [vocab]; each is accepted with probability sum min(q, p / rho) (SpecTr, 2310.15141)."""
    return 1 - (1 - float(torch.minimum(q.double(), p.double() / rho).sum())) ** k


def optimal_rate(p: Tensor, q: Tensor, k: int) -> float:
    """Return the highest acceptance rate that any rule can have with k drafts sampled independently from q
    [vocab], against p [vocab]."""
    p, q = p.double(), q.double()
    order = (
        (q / p).nan_to_num_(nan=0.0, posinf=torch.inf).argsort(descending=True)
    )  # 0 / 0: it changes nothing where it stands
    inside = p[order].cumsum(0) + 1 - q[order].cumsum(0).clamp_(max=1) ** k
    return min(1.0, float(inside.min()))  # 1 is the empty set


def note_gap(tree: DraftTree, scores: Scores, state: State, rule) -> None:
    """Attach the note "optimum" to the round: the acceptance rate rule(p, q, k) at the root, the optimal
    rate, and the gap.

    Nothing is noted unless the trace saves distributions and the root has several children sampled
    independently from one distribution. The engine's clock is paused meanwhile.
    """
    children = tree.children(-1)
    if not state.top_k_saved or len(children) < 2 or {tree.label(c) for c in children} != {IID}:
        return
    if len({tree.draw[c] for c in children}) > 1:  # several distributions; the closed forms are for one
        return
    with state.clock.paused():
        p = state.sampling.probs(scores.logits[0])
        q = tree.draft_probs(children[0])
        k = len(children)
        assert q is not None  # independent drafts are drawn
        accept, best = rule(p, q, k), optimal_rate(p, q, k)
        state.note(
            "optimum",
            drafts=k,
            accept=round(accept, 6),
            best=round(best, 6),
            gap=round(max(0.0, best - accept), 6),
        )
