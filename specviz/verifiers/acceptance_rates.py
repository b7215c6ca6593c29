"""Acceptance rates in closed form: the probability that a rule accepts one of k drafts at a position, and the best
possible rate of any rule.

p is the target's distribution, q the draft's, both [vocab]. The best rate is that of an optimal transport between k
drafts and p (Sun et al. 2310.15141): the minimum of p(H) + 1 - q(H)^k over sets H of tokens. The best H holds the
tokens with the largest q / p (Hu et al. 2502.18779), so one sort finds it.
"""
from __future__ import annotations

import torch
from torch import Tensor

from ..core import IID, DraftTree, Scores, State


def single(p: Tensor, q: Tensor) -> float:
    """Return the acceptance rate of one draft under token rejection, which is optimal for one draft (Leviathan et al.
    2211.17192)."""
    return float(torch.minimum(p, q).sum())


def recursive(p: Tensor, q: Tensor, k: int) -> float:
    """Return the acceptance rate of k independent drafts tested one after the other; after each rejection the target
    distribution is replaced by norm((p - q)+) (SpecInfer 2305.09781)."""
    refused, p = 1.0, p.double()
    for _ in range(k):
        prob = single(p, q)
        refused *= 1 - prob
        p = (p - q).clamp(min=0)
        mass = float(p.sum())
        if mass <= 0:
            return 1.0
        p = p / mass
    return 1 - refused


def together(p: Tensor, q: Tensor, k: int, rho: float) -> float:
    """Return the acceptance rate of k independent drafts under K-SEQ with parameter rho: each is accepted with
    probability sum min(q, p / rho) (SpecTr)."""
    return 1 - (1 - float(torch.minimum(q.double(), p.double() / rho).sum())) ** k


def top_and_one_sampled(p: Tensor, q: Tensor, k: int) -> float:
    """Return the acceptance rate of greedy multi-draft: the k - 1 most probable tokens, and one sampled from the rest
    of q (Hu et al. 2502.18779). A SpecHub pair is the case k = 2."""
    top = q.topk(min(k - 1, len(q))).indices
    rest = q.double().index_fill(0, top, 0.0)
    mass = float(rest.sum())
    inside = float(p[top].sum())
    if mass <= 0:
        return inside
    return inside + single(p.double().index_fill(0, top, 0.0), rest / mass)


def optimum(p: Tensor, q: Tensor, k: int) -> float:
    """Return the highest acceptance rate that any rule can have with k independent drafts."""
    p, q = p.double(), q.double()
    order = (q / p).nan_to_num_(nan=0.0, posinf=torch.inf).argsort(descending=True)  # 0 / 0: it changes nothing where it stands
    inside = p[order].cumsum(0) + 1 - q[order].cumsum(0).clamp_(max=1) ** k
    return min(1.0, float(inside.min()))  # 1 is the empty set


def note_gap(tree: DraftTree, scores: Scores, state: State, rule) -> None:
    """Note the gap between rule(p, q, k) and the optimum at the root. Only if distributions are saved and the drafts
    are independent.

    The engine's clock is paused meanwhile.
    """
    children = tree.children(-1)
    if not state.top_k_saved or len(children) < 2 or {tree.label(c) for c in children} != {IID}:
        return
    if len({tree.draw[c] for c in children}) > 1:  # several distributions; the closed forms are for one
        return
    state.clock.pause()
    p, q, k = state.sampling.probs(scores.logits[0]), tree.draft_probs(children[0]), len(children)
    assert q is not None  # independent drafts are drawn
    accept, best = rule(p, q, k), optimum(p, q, k)
    state.note("optimum", drafts=k, accept=round(accept, 6), best=round(best, 6), gap=round(max(0.0, best - accept), 6))
    state.clock.resume()
