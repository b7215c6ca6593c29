"""K-SEQ, the verifier of SpecTr: k independent drafts verified together (Sun et al. 2310.15141).

At a node with k remaining drafts from q, each is accepted with probability min(1, p(x) / (rho q(x))); rho
in [1, k] solves 1 - (1 - beta)^k = rho beta, with beta the sum of min(q, p / rho). Its acceptance rate is
at least (1 - 1/e) of the optimum. All drafts that begin with the accepted token remain candidates at the
next position; duplicate siblings are separate nodes and are processed together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import CHOSEN, IID, Decision, DraftTree, State
from .acceptance_rates import k_seq_rate
from .multi_step import MultiStep


class KSeq(MultiStep):
    """K-SEQ verification (SpecTr, Sun et al. 2310.15141): siblings sampled independently from one
    distribution are verified together. Siblings from different distributions, and chosen siblings, are
    verified one group after the other."""

    labels = frozenset({IID, CHOSEN})
    title = "K-SEQ"

    def acceptance_rate(self, p: Tensor, q: Tensor, k: int) -> float:
        return k_seq_rate(p, q, k, best_rho(p, q, k))

    def test_children(self, tree: DraftTree, children: list[int], p: Tensor, state: State) -> list[Decision]:
        found: list[Decision] = []
        for group in group_siblings(tree, children):
            probs = found[-1].remaining if found else p
            drawn = tree.draw[group[0]] >= 0
            found += (
                test_group(tree, group, probs, state) if drawn else [self.test(tree, group[0], probs, state)]
            )
            if found[-1].verdict == "accepted":
                break
        return found


def group_siblings(tree: DraftTree, children: list[int]) -> list[list[int]]:
    """Return the groups of children that are verified together: children sampled in one draw form a group,
    also under several duplicate parents; each chosen child is a group of its own."""
    out: dict[tuple[int, int], list[int]] = {}
    for child in children:
        out.setdefault((tree.draw[child], child if tree.draw[child] < 0 else -1), []).append(child)
    return list(out.values())


def test_group(tree: DraftTree, drawn: list[int], p: Tensor, state: State) -> list[Decision]:
    """Test siblings sampled in one draw by K-SEQ, one after the other, up to the accepted one; return the
    decisions.

    p: the target distribution [vocab] after rejections of earlier groups."""
    k, q = len(drawn), tree.draft_probs(drawn[0])
    assert q is not None  # they are drawn
    rho = best_rho(p, q, k)
    q, left = q.double(), p.double()
    beta = float(torch.minimum(q, left / rho).sum())
    rest = (
        (left - torch.minimum(q, left / rho) * ((1 - (1 - beta) ** k) / beta)).clamp_(min=0)
        if beta > 0
        else left
    )
    mass = float(rest.sum())
    rest = (rest / mass).to(p.dtype) if mass > _ROUNDING else p
    decisions = []
    for child in drawn:
        x = tree.tokens[child]
        accept = min(1.0, float(left[x]) / (rho * float(q[x])))
        ok, u = state.rng.flip("verify", accept)
        verdict = "accepted" if ok else "rejected"
        decisions.append(
            Decision(child, "k-seq", float(left[x]), float(q[x]), accept, u, verdict, p, None if ok else rest)
        )
        if ok:
            break
    return decisions


def best_rho(p: Tensor, q: Tensor, k: int) -> float:
    """Return K-SEQ's parameter rho for k drafts from q [vocab] against p [vocab], found by bisection; 1 for
    one draft.

    Any rho above the root is exact, too, and accepts a little less, so a short search from above suffices.
    """
    if k == 1:
        return 1.0
    low, high = 1.0, float(k)
    for _ in range(22):
        rho = (low + high) / 2
        beta = float(torch.minimum(q, p / rho).sum())
        low, high = (rho, high) if 1 - (1 - beta) ** k > rho * beta else (low, rho)
    return min(float(k), high * (1 + torch.finfo(p.dtype).eps))  # the sums are rounded, too


_ROUNDING = 1e-13
