"""Token-by-token rejection sampling: one rule for chains, i.i.d. siblings, siblings without replacement,
chosen siblings and mixtures (Leviathan et al. 2211.17192; Chen et al. 2302.01318; recursive rejection for
trees, Miao et al. 2305.09781 and Jeon et al. 2402.14160).

At a node with target distribution p, children are tested in draw order. A child x sampled from q is
accepted with probability min(1, p(x)/q(x)); if it is rejected, p is replaced by the residual norm((p -
q)+). A chosen child is accepted with probability p(x); if it is rejected, p(x) is set to 0 and p is
normalised. After the last rejection the correction token is sampled from the residual p; a node without
children yields the bonus token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..core import CHOSEN, IID, WITHOUT_REPLACEMENT, Decision, DraftTree, Scores, State, Verdict, Verifier
from .acceptance_rates import note_gap, recursive_rejection_rate
from .device_walk import PrecomputedWalk, can_precompute


class TokenRejection(Verifier):
    """Exact verification of chains and trees by rejection sampling, token by token (rule above). At
    temperature 0 a token is accepted iff it is the target's argmax."""

    labels = frozenset({CHOSEN, IID, WITHOUT_REPLACEMENT})
    title = "token rejection"

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if state.sampling.greedy:
            return verify_greedy(tree, scores, state)
        note_gap(tree, scores, state, recursive_rejection_rate)
        if scores.precomputed is not None:
            return _walk(tree, scores.precomputed, state)
        node = -1
        path = []
        decisions = []
        while True:
            p = state.sampling.probs(scores.logits[node + 1])
            children = tree.children(node)
            hit = None
            for child in children:
                decision = self.test(tree, child, p, state)
                decisions.append(decision)
                if decision.verdict == "accepted":
                    hit = child
                    break
                p = decision.remaining
            if hit is None:
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return Verdict(tuple(path), state.rng.pick("verify", p), kind, tuple(decisions), p)
            path.append(hit)
            node = hit

    def precompute(self, tree: DraftTree, scores: Scores, state: State) -> PrecomputedWalk | None:
        """Compute the rejection test of all nodes on the device. Return None for a subclass that overrides
        ``verify`` or ``test``, and at temperature 0; then ``verify`` reads values from the device as it
        needs them."""
        same = type(self).verify is TokenRejection.verify and type(self).test is TokenRejection.test
        return PrecomputedWalk(tree, scores, state) if same and can_precompute(state.sampling, tree) else None

    def test(self, tree: DraftTree, child: int, p: Tensor, state: State) -> Decision:
        """Test one child by rejection sampling against p [vocab], the residual distribution after its
        earlier siblings."""
        x, q = tree.tokens[child], tree.draft_probs(child)
        return _decide(
            child, float(p[x]), None if q is None else float(q[x]), p, lambda: _residual(p, q, x), state
        )


def _decide(
    child: int,
    target_prob: float,
    draft_prob: float | None,
    p: Tensor,
    left: Callable[[], Tensor],
    state: State,
) -> Decision:
    """Accept the child with probability min(1, p/q). ``left`` returns the residual distribution."""
    accept = (
        target_prob if draft_prob is None else min(1.0, target_prob / draft_prob) if draft_prob > 0 else 0.0
    )
    ok, u = state.rng.flip("verify", accept)
    rule = "match" if draft_prob is None else "ratio"
    if ok:
        return Decision(child, rule, target_prob, draft_prob, accept, u, "accepted", p)
    return Decision(child, rule, target_prob, draft_prob, accept, u, "rejected", p, left())


def _walk(tree: DraftTree, seen: PrecomputedWalk, state: State) -> Verdict:
    """Walk the tree over the numbers precomputed on the device."""
    node = -1
    path = []
    decisions = []
    while True:
        children, hit = tree.children(node), None
        for child in children:
            left = partial(seen.residuals.__getitem__, child)
            decisions.append(_decide(child, *seen.token_probs(child), seen.distributions[child], left, state))
            if decisions[-1].verdict == "accepted":
                hit = child
                break
        if hit is None:
            kind = "correction" if children else "bonus" if len(tree) else "plain"
            state.rng.flip("verify", 0.0)  # the uniform by which the device has drawn
            return Verdict(
                tuple(path), seen.end_token(node + 1), kind, tuple(decisions), seen.end_probs[node + 1]
            )
        path.append(hit)
        node = hit


def verify_greedy(tree: DraftTree, scores: Scores, state: State) -> Verdict:
    """Verify a tree at temperature 0: a child is accepted iff its token is the target's argmax. This is
    token rejection with a one-hot target distribution, but needs one argmax per node instead of
    distributions over the vocabulary."""
    node = -1
    path = []
    decisions = []
    while True:
        best = scores.top(node + 1)
        probs = torch.zeros_like(scores.logits[node + 1])
        probs[best] = 1
        children, hit = tree.children(node), None
        for child in children:
            accept, draft_prob = float(tree.tokens[child] == best), tree.prob(child)
            ok, u = state.rng.flip("verify", accept)
            rule = "match" if draft_prob is None else "ratio"
            if ok:
                decisions.append(Decision(child, rule, accept, draft_prob, accept, u, "accepted", probs))
                hit = child
                break
            decisions.append(Decision(child, rule, accept, draft_prob, accept, u, "rejected", probs, probs))
        if hit is None:
            kind = "correction" if children else "bonus" if len(tree) else "plain"
            return Verdict(tuple(path), best, kind, tuple(decisions), probs)
        path.append(hit)
        node = hit


def verify_lossy_greedy(
    tree: DraftTree, scores: Scores, decide: Callable[[int, Tensor, int], Decision]
) -> Verdict:
    """Verify a tree at temperature 0 by a lossy rule. decide(child, the target's distribution [vocab] at
    temperature 1, its argmax) returns the Decision for a child. If no child is accepted, the argmax is the
    next token."""
    node = -1
    path = []
    decisions = []
    while True:
        belief, best = scores.logits[node + 1].float().softmax(-1), scores.top(node + 1)
        children, hit = tree.children(node), None
        for child in children:
            decisions.append(decide(child, belief, best))
            if decisions[-1].verdict == "accepted":
                hit = child
                break
        if hit is None:
            probs = torch.zeros_like(belief)
            probs[best] = 1
            kind = "correction" if children else "bonus" if len(tree) else "plain"
            return Verdict(tuple(path), best, kind, tuple(decisions), probs)
        path.append(hit)
        node = hit


def _residual(p: Tensor, q: Tensor | None, x: int) -> Tensor:
    """Return the residual of p after x was rejected; p itself where rounding leaves nothing (only when p =
    q)."""
    if q is None:
        rest = p.clone()
        rest[x] = 0
    else:
        rest = (p - q).clamp_(min=0)
    mass = float(rest.sum())
    return rest / mass if mass > 0 else p
