"""Loose acceptance: an isolated refusal where the target is unsure is forgiven when everything right after it agrees (FLy, Li et al.
2511.22972). It follows the target's law no longer, and notes by how much.
"""
from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..core import DraftTree, Scores, State, Decision, Verdict
from .token_rejection import TokenRejection

BEST = 3  # tokens over which the target's doubt is measured


class DeferredAcceptance(TokenRejection):
    """A refused token of a chain stands when what the target's three best tokens add to its entropy is at least ``unsure`` nats, it is
    not impossible, and each of the next ``window`` tokens is there and accepted. A window of 0 is the fair test.

    Drift: the log-probability given up at each forgiven token against the best one, in nats.
    """

    title = "deferred acceptance (lossy)"

    def __init__(self, unsure: float = 0.7, window: int = 3):
        self.unsure, self.window = unsure, window

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        chain = tree.parents == tuple(range(-1, len(tree) - 1)) and not tree.probes
        if not chain or not self.window:
            return super().verify(tree, scores, state)
        distributions = [state.sampling.probs(row) for row in scores.logits]
        decisions = [self.judged(tree, i, distributions[i], scores.logits[i], state) for i in range(len(tree))]
        path, drift = [], []
        for i, decision in enumerate(decisions):
            if decision.verdict != "accepted":
                if not self.forgiven(i, decisions, scores.logits[i], tree.tokens[i]):
                    break
                belief = scores.logits[i].float().log_softmax(-1)
                drift.append(float(belief.max() - belief[tree.tokens[i]]))
                decisions[i] = Decision(i, "deferred", decision.target_prob, decision.draft_prob, decision.accept, decision.draw, "accepted", distributions[i])
            path.append(i)
        if drift:
            state.note("drift", nats=drift)
        end = len(path)
        told = [*decisions[:end + 1], *(replace(decision, verdict="skipped") for decision in decisions[end + 1:])]
        probs = distributions[end] if end == len(tree) else decisions[end].residual
        kind = "correction" if end < len(tree) else "bonus" if len(tree) else "plain"
        return Verdict(tuple(path), state.rng.pick("verify", probs), kind, tuple(told), probs)

    def judged(self, tree: DraftTree, node: int, probs: Tensor, row: Tensor, state: State) -> Decision:
        """The fair test of one token, whatever became of those before it."""
        if not state.sampling.greedy:
            return self.test(tree, node, probs, state)
        right = float(tree.tokens[node] == int(row.argmax()))
        ok, u = state.rng.flip("verify", right)
        return Decision(node, "match", right, None, right, u, "accepted" if ok else "rejected", probs, None if ok else probs)

    def forgiven(self, at: int, decisions: list[Decision], row: Tensor, token: int) -> bool:
        after = decisions[at + 1:at + 1 + self.window]
        return (len(after) == self.window and all(t.verdict == "accepted" for t in after)
                and float(row[token]) > -math.inf and doubt(row) >= self.unsure)


def doubt(row: Tensor) -> float:
    """What the three best tokens of a row of logits [vocab] add to its entropy, in nats; at most log 3, and little where many tokens
    share the rest: the target may then not be held to any of them, but it does not waver between a few wordings either."""
    p = row.float().softmax(-1).topk(min(BEST, len(row))).values
    return -float(torch.special.xlogy(p, p).sum())
