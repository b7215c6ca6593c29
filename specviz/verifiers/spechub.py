"""SpecHub: two siblings, one of them the draft's top-1 token, verified as a pair (Sun et al. 2411.05289).

With a the top-1 token and q the distribution, the pairs are (i, a) with probability q(i) and (a, i) with
probability q(a) q(i) / (1 - q(a)). Each pair tests i first; the rest of its probability goes to a. No rule
accepts more for these pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import CHOSEN, IID, Decision, DraftTree, IncompatibleVerifier, Scores, State, Verdict
from ..trees import HUB
from .token_rejection import TokenRejection, verify_greedy


class SpecHub(TokenRejection):
    """SpecHub verification (Sun et al. 2411.05289): pairs of siblings sampled by ``hub_children`` are
    verified as a pair, other siblings by token rejection."""

    labels = frozenset({HUB, CHOSEN, IID})
    title = "SpecHub"

    def check(self, tree: DraftTree) -> None:
        super().check(tree)
        for node in range(-1, len(tree)):
            drawn = [tree.label(child) for child in tree.children(node) if tree.draw[child] >= 0]
            if HUB in drawn and drawn not in ([HUB], [HUB, HUB]):
                raise IncompatibleVerifier(
                    "SpecHub verifies at most one pair of hub siblings under a node", "verifier.hub_pairs"
                )

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if state.sampling.greedy:
            return verify_greedy(tree, scores, state)
        node = -1
        path = []
        decisions = []
        while True:
            p = state.sampling.probs(scores.logits[node + 1])
            children = tree.children(node)
            pair = [child for child in children if tree.label(child) == HUB]
            found = verify_pair(tree, pair, p, state) if len(pair) == 2 else []
            hit = next((decision.node for decision in found if decision.verdict == "accepted"), None)
            p = found[-1].remaining if found and hit is None else p
            for child in children if hit is None else ():
                if len(pair) == 2 and child in pair:
                    continue
                found.append(self.test(tree, child, p, state))
                if found[-1].verdict == "accepted":
                    hit = child
                    break
                p = found[-1].remaining
            decisions += found
            if hit is None:
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return Verdict(tuple(path), state.rng.pick("verify", p), kind, tuple(decisions), p)
            path.append(hit)
            node = hit


def verify_pair(tree: DraftTree, pair: list[int], p: Tensor, state: State) -> list[Decision]:
    """Test a SpecHub pair against p [vocab] and return the decisions: first for the token that is not the
    draft's top-1 token, then, if it is rejected, for the top-1 token (the hub)."""
    assert tree.probs is not None  # hub pairs are drawn
    q = tree.probs[tree.draw[pair[0]]].double()
    q = q / q.sum()
    tokens = [tree.tokens[child] for child in pair]
    hub = int(tree.probs[tree.draw[pair[0]]].argmax())  # as the drafter found it, ties and rounding included
    other_q, hub_q = q.clone(), float(q[hub])
    other_q[hub] = 0
    first = other_q  # probability of the pair (i, hub)
    second = other_q * (hub_q / float(other_q.sum()))  # probability of the pair (hub, i)
    left = p.double() / p.sum(dtype=torch.float64)
    after_first = _take(left, first)
    after_second = _take(after_first, second)
    spare_second, spare_first = (
        float((second - after_first).clamp_(min=0).sum()),
        float((first - left).clamp_(min=0).sum()),
    )
    hub_left = float(after_second[hub])
    place = tokens.index(hub)
    i = tokens[1 - place]
    probs = (after_first, left)[place]
    prob = (second, first)[place]
    spare, hub_p = ((spare_second, hub_left), (spare_first, max(0.0, hub_left - spare_second)))[place]
    rest = after_second
    rest[hub] = max(0.0, hub_left - spare_second - spare_first)
    mass = float(rest.sum())
    rest = (rest / mass).to(p.dtype) if mass > 0 else p
    decisions = []
    for child, target_prob, draft_prob, accept in (
        (pair[1 - place], float(probs[i]), float(prob[i]), _share(float(probs[i]), float(prob[i]))),
        (pair[place], hub_p, spare, _share(hub_p, spare)),
    ):
        ok, u = state.rng.flip("verify", accept)
        verdict = "accepted" if ok else "rejected"
        decisions.append(
            Decision(child, "hub", target_prob, draft_prob, accept, u, verdict, p, None if ok else rest)
        )
        if ok:
            break
    return decisions


def _take(probs: Tensor, prob: Tensor) -> Tensor:
    """Return (probs - prob)+."""
    return (probs - prob).clamp_(min=0)


def _share(have: float, want: float) -> float:
    return min(1.0, have / want) if want > 0 else 0.0
