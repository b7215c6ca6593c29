"""Deferred acceptance (FLy, Li et al. 2511.22972): a rejected token at a high-entropy position is kept if
the next drafted tokens are all accepted.

The rule is lossy; its deviation is noted as drift.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict
from .token_rejection import TokenRejection

BEST = 3  # top tokens over which the target's entropy is summed


class DeferredAcceptance(TokenRejection):
    """FLy's lossy verifier (Li et al. 2511.22972): keep a rejected token of a chain if three conditions
    hold. The target's top three tokens contribute at least ``min_entropy`` nats to its entropy, the token
    has a positive probability, and the chain has ``window`` more tokens after it, all accepted. Window 0 is
    ordinary rejection sampling.

    The note "drift": for each token kept in this way, the log-probability of the argmax minus that of the
    token, in nats.
    """

    title = "deferred acceptance (lossy)"

    def __init__(self, min_entropy: float = 0.7, window: int = 3):
        self.min_entropy, self.window = min_entropy, window

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        chain = tree.parents == tuple(range(-1, len(tree) - 1)) and not tree.probes
        if not chain or not self.window:
            return super().verify(tree, scores, state)
        distributions = [state.sampling.probs(row) for row in scores.logits]
        decisions = [
            self.test_token(tree, i, distributions[i], scores.logits[i], state) for i in range(len(tree))
        ]
        path, drift = [], []
        for i, decision in enumerate(decisions):
            if decision.verdict != "accepted":
                if not self.passes_window(i, decisions, scores.logits[i], tree.tokens[i]):
                    break
                belief = scores.logits[i].float().log_softmax(-1)
                drift.append(float(belief.max() - belief[tree.tokens[i]]))
                decisions[i] = replace(
                    decision, rule="deferred", verdict="accepted", probs=distributions[i], residual=None
                )
            path.append(i)
        if drift:
            state.note("drift", nats=drift)
        end = len(path)
        shown = [
            *decisions[: end + 1],
            *(replace(decision, verdict="skipped") for decision in decisions[end + 1 :]),
        ]
        probs = distributions[end] if end == len(tree) else decisions[end].residual
        kind = "correction" if end < len(tree) else "bonus" if len(tree) else "plain"
        return Verdict(tuple(path), state.rng.pick("verify", probs), kind, tuple(shown), probs)

    def test_token(self, tree: DraftTree, node: int, probs: Tensor, row: Tensor, state: State) -> Decision:
        """Test one token by rejection sampling, even if a token before it was rejected. probs, row: the
        target's distribution and logits [vocab] at its position."""
        if not state.sampling.greedy:
            return self.test(tree, node, probs, state)
        right = float(tree.tokens[node] == int(row.argmax()))
        ok, u = state.rng.flip("verify", right)
        return Decision(
            node,
            "match",
            right,
            None,
            right,
            u,
            "accepted" if ok else "rejected",
            probs,
            None if ok else probs,
        )

    def passes_window(self, position: int, decisions: list[Decision], row: Tensor, token: int) -> bool:
        """Return whether the rejected ``token`` at this position of the chain is kept. row: the target's
        logits [vocab] there."""
        after = decisions[position + 1 : position + 1 + self.window]
        return (
            len(after) == self.window
            and all(t.verdict == "accepted" for t in after)
            and float(row[token]) > -math.inf
            and top_entropy(row) >= self.min_entropy
        )


def top_entropy(row: Tensor) -> float:
    """Return the contribution of the top three tokens to the entropy of the distribution with logits
    ``row`` [vocab], in nats; at most log 3. It is high if two or three tokens share the probability, and
    small if one token dominates or many share it."""
    p = row.float().softmax(-1).topk(min(BEST, len(row))).values
    return -float(torch.special.xlogy(p, p).sum())
