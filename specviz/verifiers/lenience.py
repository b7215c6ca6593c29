"""Lenience: the target probability of a drafted token is multiplied by 1/l before the test (Leviathan et al.
2211.17192, appendix).

The rule is lossy; its deviation is measured and noted as drift.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict, token_tensor
from .drift import kl_divergence
from .token_rejection import TokenRejection, verify_lossy_greedy


class Lenient(TokenRejection):
    """Lossy verifier: token rejection with acceptance probability min(1, p / (l q)), l = ``lenience`` in
    (0, 1]; 1 is exact (Leviathan et al. 2211.17192, appendix). At temperature 0 a token is accepted if its
    probability is at least l times the largest one.

    The note "drift": nats of KL(target distribution, output distribution) at each position where a token
    was tested; at temperature 0 the log-probability of the argmax minus that of the accepted token.
    """

    title = "lenience (lossy)"

    def __init__(self, lenience: float = 0.5):
        self.lenience = lenience
        self._drift: list[float] = []

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        self._drift = []
        verdict = (
            self._greedy(tree, scores, state)
            if state.sampling.greedy
            else super().verify(tree, scores, state)
        )
        if self._drift:
            state.note("drift", nats=self._drift)
        return verdict

    def test(self, tree: DraftTree, child: int, p: Tensor, state: State) -> Decision:
        x, q = tree.tokens[child], tree.draft_probs(child)
        q = torch.zeros_like(p).index_fill_(0, torch.tensor([x], device=p.device), 1.0) if q is None else q
        accept = (p / (self.lenience * q)).nan_to_num_(nan=0.0, posinf=1.0).clamp_(max=1.0)
        rest = (p - q).clamp_(min=0)
        mass = float(rest.sum())
        rest = rest / mass if mass > 0 else p
        passed = q * accept
        self._drift.append(kl_divergence(p, passed + (1 - passed.sum()).clamp_(min=0) * rest))
        ok, u = state.rng.flip("verify", float(accept[x]))
        verdict = "accepted" if ok else "rejected"
        return Decision(
            child, "lenient", float(p[x]), float(q[x]), float(accept[x]), u, verdict, p, None if ok else rest
        )

    def _greedy(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        def decide(child: int, belief: Tensor, best: int) -> Decision:
            prob, most = belief.index_select(
                0, token_tensor(belief.device, [tree.tokens[child], best])
            ).tolist()
            ok, u = state.rng.flip("verify", float(prob >= self.lenience * most))
            if ok:
                self._drift.append(math.log(most / prob) if prob > 0 else math.inf)
            return Decision(
                child, "lenient", prob, None, float(ok), u, "accepted" if ok else "rejected", belief, belief
            )

        return verify_lossy_greedy(tree, scores, decide)
