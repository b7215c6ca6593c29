"""Deferred acceptance (FLy, Li et al. 2511.22972): a rejected token at a high-entropy position is kept if the next
drafted tokens are all accepted.

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
    """Keep a rejected token of a chain if three conditions hold: the target's top three tokens contribute at least
    ``unsure`` nats to its entropy, the token has a positive probability, and each of the next ``window`` tokens is
    drafted and accepted. Window 0 is ordinary rejection sampling.

    Drift: the log-probability of the best token minus that of the kept one, in nats, at each such token.
    """

    title = "deferred acceptance (lossy)"

    def __init__(self, unsure: float = 0.7, window: int = 3):
        self.unsure, self.window = unsure, window

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        chain = tree.parents == tuple(range(-1, len(tree) - 1)) and not tree.probes
        if not chain or not self.window:
            return super().verify(tree, scores, state)
        distributions = [state.sampling.probs(row) for row in scores.logits]
        decisions = [self.test_token(tree, i, distributions[i], scores.logits[i], state) for i in range(len(tree))]
        path, drift = [], []
        for i, decision in enumerate(decisions):
            if decision.verdict != "accepted":
                if not self.passes_window(i, decisions, scores.logits[i], tree.tokens[i]):
                    break
                belief = scores.logits[i].float().log_softmax(-1)
                drift.append(float(belief.max() - belief[tree.tokens[i]]))
                decisions[i] = replace(decision, rule="deferred", verdict="accepted", probs=distributions[i], residual=None)
            path.append(i)
        if drift:
            state.note("drift", nats=drift)
        end = len(path)
        shown = [*decisions[:end + 1], *(replace(decision, verdict="skipped") for decision in decisions[end + 1:])]
        probs = distributions[end] if end == len(tree) else decisions[end].residual
        kind = "correction" if end < len(tree) else "bonus" if len(tree) else "plain"
        return Verdict(tuple(path), state.rng.pick("verify", probs), kind, tuple(shown), probs)

    def test_token(self, tree: DraftTree, node: int, probs: Tensor, row: Tensor, state: State) -> Decision:
        """Test one token by rejection sampling, even if a token before it was rejected."""
        if not state.sampling.greedy:
            return self.test(tree, node, probs, state)
        right = float(tree.tokens[node] == int(row.argmax()))
        ok, u = state.rng.flip("verify", right)
        return Decision(node, "match", right, None, right, u, "accepted" if ok else "rejected", probs, None if ok else probs)

    def passes_window(self, at: int, decisions: list[Decision], row: Tensor, token: int) -> bool:
        after = decisions[at + 1:at + 1 + self.window]
        return (len(after) == self.window and all(t.verdict == "accepted" for t in after)
                and float(row[token]) > -math.inf and top_entropy(row) >= self.unsure)


def top_entropy(row: Tensor) -> float:
    """Return the contribution of the top three tokens to the entropy of a row of logits [vocab], in nats: at most log
    3. It is high if the target hesitates between a few tokens, and small if one token dominates or many share the
    probability."""
    p = row.float().softmax(-1).topk(min(BEST, len(row))).values
    return -float(torch.special.xlogy(p, p).sum())
