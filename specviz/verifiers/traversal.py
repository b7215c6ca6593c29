"""Traversal verification: test the tree from the leaves up and keep the longest path that passes the test
of its joint probability (Weng et al. 2505.12398). On a chain it is block verification (Sun et al.
2403.10444).

Every node has the weight r(v) = min(1, r(parent) * p(x_v) / q(x_v)). A leaf is kept, with its whole path,
with probability r. If a child is rejected, its parent's distribution becomes norm((r p - q)+) and its
weight Z / (Z + 1 - r), with Z the sum of (r p - q)+. The next child is tested, and after the last child the
parent itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import CHOSEN, IID, WITHOUT_REPLACEMENT, Decision, DraftTree, Scores, State, Verdict, Verifier
from .token_rejection import verify_greedy


class Traversal(Verifier):
    """Exact verification of a draft tree from the leaves up (Weng et al. 2505.12398; rule above), for
    i.i.d. siblings, siblings sampled without replacement, and chosen siblings. A chosen node counts as
    sampled from a one-hot distribution."""

    labels = frozenset({CHOSEN, IID, WITHOUT_REPLACEMENT})
    title = "traversal verification"

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if state.sampling.greedy:  # every weight is 0 or 1 and the walk finds the target's own path
            return verify_greedy(tree, scores, state)
        return _Walk(tree, scores, state).run()


class _Walk:
    """One walk: current target distribution and weight of every node on the way down, and the decisions
    made."""

    def __init__(self, tree: DraftTree, scores: Scores, state: State):
        self.tree = tree
        self.scores = scores
        self.state = state
        self.probs: dict[int, Tensor] = {}
        self.weight: dict[int, float] = {-1: 1.0}
        self.drawn: dict[int, Tensor | None] = {}  # node -> the distribution it was drawn from
        self.seen: dict[int, tuple[float, float | None]] = {}  # node -> p(x), q(x) when it was reached
        self.decisions: list[Decision] = []

    def run(self) -> Verdict:
        """Test the whole tree and return the verdict."""
        kept = self.visit(-1)
        assert kept is not None  # the root is never rejected
        path, probs = self.tree.path(kept), self.row(kept)
        for node in path[:-1]:  # kept because something below them was
            self.decisions.append(Decision(node, "prefix", *self.seen[node], 1.0, None, "accepted"))
        kind = "correction" if self.tree.children(kept) else "bonus" if len(self.tree) else "plain"
        return Verdict(tuple(path), self.state.rng.pick("verify", probs), kind, tuple(self.decisions), probs)

    def visit(self, node: int) -> int | None:
        """Test the subtree of ``node`` and return the accepted node in it, whose path is the longest
        accepted one; None if all of its nodes were rejected."""
        for child in self.tree.children(node):
            self.reach(node, child)
            kept = self.visit(child)
            if kept is not None:
                return kept
            self.refuse(node, child)
        return node if node < 0 else self.test(node)

    def row(self, node: int) -> Tensor:
        """Return the current target distribution [vocab] after ``node``; a leaf's is computed only if the
        leaf is accepted."""
        if node not in self.probs:
            self.probs[node] = self.state.sampling.probs(self.scores.logits[node + 1])
        return self.probs[node]

    def reach(self, node: int, child: int) -> None:
        """Compute the weight of ``child`` from that of its parent ``node``."""
        x, q = self.tree.tokens[child], self.tree.draft_probs(child)
        self.drawn[child] = q
        p, draft_prob = float(self.row(node)[x]), None if q is None else float(q[x])
        self.seen[child] = (p, draft_prob)
        ratio = p if draft_prob is None else p / draft_prob if draft_prob > 0 else 0.0
        self.weight[child] = min(1.0, self.weight[node] * ratio)

    def test(self, node: int) -> int | None:
        """Accept ``node`` with its weight as probability; return it, or None if it is rejected."""
        ok, u = self.state.rng.flip("verify", self.weight[node])
        self.tested = node, "traversal", *self.seen[node], self.weight[node], u
        if not ok:
            return None  # ``refuse`` comes next and records the decision with the residual
        self.decisions.append(Decision(*self.tested, "accepted", self.probs[self.tree.parents[node]]))
        return node

    def refuse(self, node: int, child: int) -> None:
        """Record that ``child`` and everything below it was rejected: replace the target distribution after
        its parent ``node`` by the residual, and update the parent's weight."""
        q = self.drawn[child]
        r = self.weight[node]
        probs = self.probs[node]
        rest = probs * r
        if q is None:
            rest[self.tree.tokens[child]] = (
                0  # a one-hot draft distribution takes all of it, since r * p <= 1
            )
        else:
            rest.sub_(q).clamp_(min=0)
        mass = float(rest.sum(dtype=torch.float64))
        missing = mass + 1 - r
        self.weight[node] = mass / missing if missing > _ROUNDING else 1.0
        if mass > _ROUNDING:  # else rounding left nothing: only when p = q, and then nothing is refused
            self.probs[node] = rest.div_(mass)
        self.decisions.append(Decision(*self.tested, "rejected", probs, self.probs[node]))


_ROUNDING = 1e-15
