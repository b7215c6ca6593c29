"""RAPID's acceptance rule (Chen et al. 2502.20330): the target's distribution is shifted towards the
draft's before the draft is tested.

With target logits z, distributions p and q, and g = p - q where q is at least ``floor`` of its largest
value, else 0, the test uses p' = softmax(z - weight * g): accept with probability min(1, p'(x)/q(x)); after
a rejection sample from max(0, p - q, p - p'), normalised. The paper reports better quality if the draft's
context is better chosen than the target's. The output does not follow the target's distribution; with
weight 0 the rule is ordinary speculative decoding and exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict
from .drift import kl_divergence
from .token_rejection import TokenRejection


class RapidVerification(TokenRejection):
    """Lossy verifier of chains: token rejection against p', the target distribution shifted towards the
    draft's (RAPID, Chen et al. 2502.20330; formula above). At temperature 0 a token is accepted if it is
    the argmax of z or of z - weight * g.

    weight: the paper's eta; floor: the paper's alpha; beliefs(): the draft model's distributions at
    temperature 1, one [vocab] for each node of the chain, used only at temperature 0.

    The note "drift": nats of KL(target distribution, output distribution) at each tested position; at
    temperature 0 the log-probability of the argmax minus that of the accepted token.
    """

    def __init__(self, weight: float, floor: float, beliefs: Callable[[], Sequence[Tensor]]):
        self.weight = weight
        self.floor = floor
        self.beliefs = beliefs

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        path = []
        decisions = []
        drift = []
        shown = []
        judge = self._greedy if state.sampling.greedy else self._drawn
        verdict = None
        for node in range(len(tree)):  # a chain
            decision, rest, off, bars = judge(tree, node, scores.logits[node], state)
            decisions.append(decision)
            drift.append(off)
            shown.append(bars)
            if decision.verdict == "rejected":
                verdict = Verdict(
                    tuple(path), state.rng.pick("verify", rest), "correction", tuple(decisions), rest
                )
                break
            path.append(node)
        if shown:
            state.note("enriched", weight=self.weight, tests=shown)
            state.note("drift", nats=drift)
        if verdict is None:
            probs = state.sampling.probs(scores.logits[len(tree)])
            verdict = Verdict(
                tuple(path),
                state.rng.pick("verify", probs),
                "bonus" if path else "plain",
                tuple(decisions),
                probs,
            )
        return verdict

    def shifted_logits(self, z: Tensor, p: Tensor, q: Tensor, temperature: float) -> Tensor:
        """Return the logits [vocab] of p', before division by the temperature. z: the target's logits
        [vocab]; p, q: the target's and the draft's distribution [vocab]."""
        gap = torch.where(q >= self.floor * q.max(), p - q, torch.zeros_like(p))
        return (z.to(p.dtype) - temperature * self.weight * gap) if self.weight else z

    def _drawn(self, tree: DraftTree, node: int, z: Tensor, state: State):
        x = tree.tokens[node]
        q = tree.draft_probs(node)
        p = state.sampling.probs(z)
        assert q is not None  # the draft draws its chain above temperature 0
        rich = state.sampling.probs(self.shifted_logits(z, p, q, state.sampling.temperature))
        accept = min(1.0, float(rich[x]) / float(q[x])) if q[x] > 0 else 0.0
        rest = torch.maximum((p - q).clamp_(min=0), p - rich)
        rest = rest / rest.sum() if float(rest.sum()) > 0 else p
        passed = torch.minimum(q, rich)
        off = kl_divergence(p, passed + (1 - passed.sum()).clamp_(min=0) * rest) if self.weight else 0.0
        return self._decide(node, x, p, q, rich, accept, rest, off, state)

    def _greedy(self, tree: DraftTree, node: int, z: Tensor, state: State):
        x = tree.tokens[node]
        q = self.beliefs()[node]
        p = z.float().softmax(-1).to(self.beliefs()[node].dtype)
        rich = self.shifted_logits(z, p, q, 1.0).softmax(-1)
        probs = torch.zeros_like(p)
        probs[int(z.argmax())] = 1
        accept = float(x in (int(z.argmax()), int(self.shifted_logits(z, p, q, 1.0).argmax())))
        off = float((p.max() / p[x].clamp(min=torch.finfo(p.dtype).tiny)).log()) if accept else 0.0
        return self._decide(node, x, p, q, rich, accept, probs, off, state)

    @staticmethod
    def _decide(node, x, p, q, rich, accept, rest, off, state):
        ok, u = state.rng.flip("verify", accept)
        verdict = "accepted" if ok else "rejected"
        bars = {"tok": x, "p": float(p[x]), "q": float(q[x]), "moved": float(rich[x])}
        return (
            Decision(node, "enriched", float(p[x]), float(q[x]), accept, u, verdict, p, None if ok else rest),
            rest,
            max(0.0, off),
            bars,
        )
