"""Typical acceptance: a token is accepted if its probability is above a threshold that falls with the
entropy (Medusa, Cai et al. 2401.10774).

The rule is lossy above temperature 0; its deviation is noted as drift.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict
from .token_rejection import TokenRejection, verify_greedy


class Typical(TokenRejection):
    """Typical acceptance (Medusa, Cai et al. 2401.10774): a drafted token x is accepted iff p(x) >
    min(floor, share * exp(-entropy of p)). Exact at temperature 0, where x is accepted iff it is the
    argmax; lossy above.

    last: how the token after the accepted path is chosen: "argmax" (the authors' fast mode); "typical",
    sampled from the tokens that would be accepted (their other mode); or "distribution", sampled from the
    target's distribution.

    In a tree the longest accepted path is kept, of equally long ones that with the highest target
    probability. The note "drift": for each accepted token, the log-probability of the argmax minus that of
    the token, in nats.
    """

    title = "typical acceptance (lossy)"

    def __init__(self, floor: float = 0.09, share: float = 0.3, last: str = "argmax"):
        self.floor = floor
        self.share = share
        self.last = last

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if state.sampling.greedy:
            return verify_greedy(tree, scores, state)
        distributions, decisions, ends = (
            {},
            {},
            [(-1, 0.0)],
        )  # nodes reached, and the log-probability of their paths
        for node, worth in ends:
            distributions[node] = p = state.sampling.probs(scores.logits[node + 1])
            children = tree.children(node)
            threshold = self.threshold(p) if children else 0.0
            for child in children:
                decisions[child] = self._try(tree, child, p, threshold, state)
                if decisions[child].verdict == "accepted":
                    ends.append((child, worth + math.log(decisions[child].target_prob)))
        last = max(ends, key=lambda end: (len(tree.path(end[0])), end[1]))[0]
        path, probs = tuple(tree.path(last)), self.after(distributions[last])
        above = [distributions[tree.parents[node]] for node in path]
        drift = [float((probs.max() / probs[tree.tokens[node]]).log()) for node, probs in zip(path, above)]
        if drift:
            state.note("drift", nats=drift, threshold=self.threshold(distributions[tree.parents[last]]))
        shown = tuple(
            replace(decision, verdict="skipped")
            if decision.verdict == "accepted" and node not in path
            else decision
            for node, decision in decisions.items()
        )  # a token that passed on a shorter path counts as skipped
        kind = "correction" if tree.children(last) else "bonus" if len(tree) else "plain"
        return Verdict(path, state.rng.pick("verify", probs), kind, shown, probs)

    def after(self, p: Tensor) -> Tensor:
        """Return the distribution [vocab] from which the token after the accepted path is sampled, given
        the target's p [vocab]."""
        if self.last == "distribution":
            return p
        kept = p * (p > self.threshold(p)) if self.last == "typical" else torch.zeros_like(p)
        if float(kept.sum()) <= 0:  # argmax mode, or no token is likely enough
            kept[int(p.argmax())] = 1
        return kept / kept.sum()

    def threshold(self, p: Tensor) -> float:
        """Return the probability that a token must exceed to be accepted, given the target's distribution p
        [vocab]."""
        return min(self.floor, self.share * float(torch.exp(torch.special.xlogy(p, p).sum())))

    @staticmethod
    def _try(tree: DraftTree, child: int, p: Tensor, threshold: float, state: State) -> Decision:
        x, q = tree.tokens[child], tree.draft_probs(child)
        ok, u = state.rng.flip("verify", float(p[x] > threshold))
        return Decision(
            child,
            "typical",
            float(p[x]),
            None if q is None else float(q[x]),
            float(ok),
            u,
            "accepted" if ok else "rejected",
            p,
            None if ok else p,
        )
