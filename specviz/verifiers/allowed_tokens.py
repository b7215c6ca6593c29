"""Lossy rules that define a set of allowed tokens at each position. A drafted token in the set is accepted;
the first one outside is replaced by the target's own token.

SpecDec (Xia et al. 2203.16487): the target's top beta tokens, at most tau nats below the best one. BiLD
(Kim et al. 2302.07863): tokens above a small target probability.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict
from .drift import kl_divergence
from .token_rejection import TokenRejection


class AllowedTokens(TokenRejection):
    """Base class of lossy verifiers that accept a drafted token if it is in a set of allowed tokens; a
    subclass implements ``allowed_mask``.

    The note "drift": nats of KL(target distribution, output distribution) at each position where a token
    was tested; at temperature 0 the log-probability of the argmax minus that of the accepted token."""

    rule = ""

    def allowed_mask(self, logits: Tensor) -> Tensor:
        """Return a boolean mask [vocab], True for allowed tokens, given the target's logits [vocab]."""
        raise TypeError(f"{type(self).__name__} does not define which tokens pass")

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        path = []
        decisions = []
        drift = []
        node, greedy = -1, state.sampling.greedy
        while True:
            logits = scores.logits[node + 1]
            probs, children = state.sampling.probs(logits), tree.children(node)
            belief = logits.float().softmax(-1) if greedy else probs
            hit, allowed = None, self.allowed_mask(logits) if children else logits.new_empty(0)
            for child in children:
                decision = self._try(tree, child, belief, allowed, state)
                decisions.append(decision)
                drift += decision_drift(decision, tree, belief, allowed, greedy)
                if decision.verdict == "accepted":
                    hit = child
                    break
            if hit is None:
                if drift:
                    state.note("drift", nats=drift)
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return Verdict(tuple(path), state.rng.pick("verify", probs), kind, tuple(decisions), probs)
            path.append(hit)
            node = hit

    def _try(self, tree: DraftTree, child: int, belief: Tensor, allowed: Tensor, state: State) -> Decision:
        x, q = tree.tokens[child], tree.draft_probs(child)
        ok, u = state.rng.flip("verify", float(allowed[x]))
        return Decision(
            child,
            self.rule,
            float(belief[x]),
            None if q is None else float(q[x]),
            float(ok),
            u,
            "accepted" if ok else "rejected",
            belief,
            None if ok else belief,
        )


def decision_drift(
    decision: Decision, tree: DraftTree, belief: Tensor, allowed: Tensor, greedy: bool
) -> Iterator[float]:
    """Yield the drift of one decision in nats; nothing for a rejection at temperature 0.

    belief: the target distribution [vocab]; allowed: mask [vocab]. Above temperature 0 the output
    distribution is q on allowed tokens, plus the target's distribution times the remaining probability."""
    x, q = tree.tokens[decision.node], tree.draft_probs(decision.node)
    if not greedy:
        kept = (
            torch.zeros_like(belief).index_fill_(0, torch.tensor([x], device=belief.device), 1.0)
            if q is None
            else q
        )
        kept = kept * allowed
        yield kl_divergence(belief, kept + (1 - kept.sum()).clamp(min=0) * belief)
    elif decision.verdict == "accepted":
        yield float((belief.max() / belief[x]).log())


class TopBeta(AllowedTokens):
    """SpecDec's lossy rule (Xia et al. 2203.16487): accept a token if it is among the target's top beta
    tokens and its logit is at most tau nats below the largest one.

    beta 1 is exact at temperature 0.
    """

    rule = "top-beta"

    def __init__(self, beta: int = 5, tau: float = 3.0):
        self.beta, self.tau = beta, tau

    def allowed_mask(self, logits: Tensor) -> Tensor:
        best = logits.topk(min(self.beta, len(logits))).values
        return logits >= torch.maximum(best[-1], best[0] - self.tau)


class Rollback(AllowedTokens):
    """BiLD's lossy rule (Kim et al. 2302.07863): accept drafted tokens up to the first one that is too
    improbable under the target.

    bound: maximum -log p of an accepted token, in nats; the target's argmax is always accepted, so that 0
    is exact at temperature 0. The note "rollback" holds -log p of each tested token.
    """

    rule = "rollback"

    def __init__(self, bound: float = 5.0):
        self.bound = bound

    def allowed_mask(self, logits: Tensor) -> Tensor:
        allowed = logits.log_softmax(-1) >= -self.bound
        allowed[logits.argmax()] = True
        return allowed

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        verdict = super().verify(tree, scores, state)
        if verdict.decisions:
            tried = [decision.node for decision in verdict.decisions]
            rows = [tree.parents[node] + 1 for node in tried]
            nats = -scores.logits[rows].log_softmax(-1)[
                range(len(tried)), [tree.tokens[node] for node in tried]
            ]
            back = verdict.kind == "correction"
            state.note(
                "rollback",
                at=len(state.tokens),
                nats=[round(x, 5) for x in nats.tolist()],
                bound=self.bound,
                back=back,
                gone=len(tree) - len(verdict.path),
            )
        return verdict
