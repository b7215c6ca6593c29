"""LANTERN's relaxed acceptance for tokens of a codebook: in the test of a drafted token, the probabilities
of its nearest neighbours are added to its own, up to a bound (Jang et al. 2410.03355; LANTERN++: Park et
al. 2502.06352).

The rule is lossy. The total variation distance between the output distribution and the target's is measured
and noted, while the engine's clock is paused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict
from .token_rejection import TokenRejection, verify_lossy_greedy


@dataclass(frozen=True)
class AddedNeighbours:
    """The codebook neighbours whose probability is added to that of a drafted token. added [n]: their token
    ids; mass: the sum of their probabilities."""

    added: Tensor
    mass: float


class Lantern(TokenRejection):
    """Lossy verifier: token rejection with the probability p(x) + s in place of p(x) for a drafted token x
    (LANTERN, Jang et al. 2410.03355).

    neighbours [entries, k]: row i holds the tokens nearest to token ``first + i``, nearest first. s is the
    summed probability of x's first j neighbours, with the largest j for which s <= delta (LANTERN), or s <=
    delta * p(x) if ``relative`` (LANTERN++). After a rejection p is set to 0 on x and on the neighbours
    that were added, so delta 0 is exact. The authors' code sets it to 0 on all k neighbours, and is not
    exact then (docs/fidelity.md).
    """

    title = "relaxed acceptance (lossy)"

    def __init__(self, neighbours: Tensor, first: int, delta: float, relative: bool = False):
        self.neighbours = neighbours
        self.first = first
        self.delta = delta
        self.relative = relative
        self._found: list[dict[str, Any]] = []

    def added_neighbours(self, x: int, p: Tensor) -> AddedNeighbours:
        """Return the neighbours whose probability is added to that of token x under p [vocab]. There are
        none if their probability or that of x is 0, so that tokens with logit -inf are never accepted."""
        row = x - self.first
        if not 0 <= row < len(self.neighbours) or float(p[x]) == 0:
            return AddedNeighbours(self.neighbours.new_empty(0), 0.0)
        near = self.neighbours[row].to(p.device)
        total = p[near].double().cumsum(0)
        count = int((total <= self.bound(p[x])).sum())
        mass = float(total[count - 1]) if count else 0.0
        return AddedNeighbours(near[:count], mass) if mass > 0 else AddedNeighbours(near[:0], 0.0)

    def bound(self, prob: Tensor) -> float:
        """Return the largest probability that neighbours may add to a token of probability ``prob``."""
        return self.delta * float(prob) if self.relative else self.delta

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        self._found = []
        verdict = (
            self._greedy(tree, scores, state)
            if state.sampling.greedy
            else super().verify(tree, scores, state)
        )
        if self._found:
            state.note("relaxed", delta=self.delta, tests=self._found)
        return verdict

    def test(self, tree: DraftTree, child: int, p: Tensor, state: State) -> Decision:
        x, q = tree.tokens[child], tree.draft_probs(child)
        near = self.added_neighbours(x, p)
        prob = float(p[x]) + near.mass
        draft_prob = None if q is None else float(q[x])
        accept = min(1.0, prob if draft_prob is None else prob / draft_prob if draft_prob > 0 else 0.0)
        ok, u = state.rng.flip("verify", accept)
        with state.clock.paused():
            self._note(tree, child, p, q, near)
        rest = None if ok else self.left(p, q, x, near)
        return Decision(
            child, "relaxed", prob, draft_prob, accept, u, "accepted" if ok else "rejected", p, rest
        )

    def left(self, p: Tensor, q: Tensor | None, x: int, near: AddedNeighbours) -> Tensor:
        """Return the residual distribution [vocab] after x was rejected: norm((p - q)+), 0 on x and its
        added neighbours ``near``; p itself if no probability would remain. q None: x was chosen."""
        rest = p.clone() if q is None else (p - q).clamp_(min=0)
        rest[x] = 0
        rest[near.added] = 0
        mass = float(rest.sum())
        return rest / mass if mass > 0 else p

    def output_distribution(self, p: Tensor, q: Tensor | None, x: int) -> Tensor:
        """Return the output distribution [vocab] of this rule at one position with target p and one draft:
        a token sampled from q [vocab], or, if q is None, the chosen token x."""
        drawn = torch.tensor([x], device=p.device) if q is None else q.nonzero()[:, 0]
        p, share = p.double(), p.new_ones(1).double() if q is None else q[drawn].double()
        borrowed, added = self._added_neighbours_many(drawn, p)
        accept = ((p[drawn] + borrowed) / share).clamp(max=1)
        rest = (p if q is None else (p - q).clamp(min=0)).repeat(len(drawn), 1)
        rest.scatter_(1, drawn[:, None], 0)
        rest = torch.where(added, 0, rest)
        mass = rest.sum(1, keepdim=True)
        rest = torch.where(mass > 0, rest / mass.clamp(min=torch.finfo(mass.dtype).tiny), p)
        out = (share * (1 - accept)) @ rest
        return out.index_add_(0, drawn, share * accept)

    def _added_neighbours_many(self, tokens: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return the borrowed probability [tokens] of each token, and which tokens each adds, [tokens,
        vocab]."""
        rows = tokens - self.first
        known = (rows >= 0) & (rows < len(self.neighbours))
        near = self.neighbours.to(p.device)[rows.clamp(0, len(self.neighbours) - 1)]
        total = p[near].cumsum(1)
        bound = self.delta * p[tokens] if self.relative else torch.full_like(p[tokens], self.delta)
        counted = (total <= bound[:, None]) & (known & (p[tokens] > 0))[:, None]
        mass = torch.where(counted, total, 0).amax(1)
        added = torch.zeros(len(tokens), len(p), dtype=torch.bool, device=p.device).scatter_(1, near, counted)
        return mass, added & (mass > 0)[:, None]

    def _note(self, tree: DraftTree, child: int, p: Tensor, q: Tensor | None, near: AddedNeighbours) -> None:
        tv = float((self.output_distribution(p, q, tree.tokens[child]) - p).abs().sum()) / 2
        self._found.append({"node": child, "added": len(near.added), "mass": near.mass, "tv": round(tv, 9)})

    def _greedy(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        """Accept a child that is the argmax once its neighbours' probability, at temperature 1, is added to
        its own."""

        def decide(child: int, belief: Tensor, best: int) -> Decision:
            x = tree.tokens[child]
            near = self.added_neighbours(x, belief)
            prob = float(belief[x]) + near.mass
            ok, u = state.rng.flip("verify", float(x == best or prob > float(belief[best])))
            self._found.append(
                {"node": child, "added": len(near.added), "mass": near.mass, "tv": float(ok and x != best)}
            )
            return Decision(
                child, "relaxed", prob, None, float(ok), u, "accepted" if ok else "rejected", belief, belief
            )

        return verify_lossy_greedy(tree, scores, decide)
