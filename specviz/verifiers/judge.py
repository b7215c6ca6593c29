"""A judge forgives: a token that fails the fair test stands when a network on the target's states finds it good (Judge decoding,
Bachmann et al. 2501.19309). It follows the target's law no longer, and notes by how much.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Callable

import torch
from torch import Tensor

from ..core import DraftTree, Scores, State, Decision, Verdict
from .token_rejection import TokenRejection


class JudgeDecoding(TokenRejection):
    """judge: states [n, hidden] that have read the tokens -> chances [n]; a refused token stands above ``least``, so that 1 is
    the fair test. Of several children each has its fair test before the judge is asked.

    Drift: the log-probability given up at each forgiven token against the best one, in nats.
    """

    hidden_states = frozenset({"final"})
    title = "a judge (lossy)"

    def __init__(self, judge: Callable[[Tensor], Tensor], least: float = 0.5):
        self.judge, self.least = judge, least

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        with torch.inference_mode():
            token_probs = self.judge(scores.hidden_states["final"][1:len(tree) + 1]).tolist() if len(tree) else []
        node, path, decisions, drift, forgiven = -1, [], [], [], []
        while True:
            row, children = scores.logits[node + 1], tree.children(node)
            probs = p = state.sampling.probs(row)
            hit = None
            for child in children:
                decision = self.fair(tree, child, p, row, state)
                if decision.verdict != "accepted" and token_probs[child] > self.least:
                    belief = row.float().log_softmax(-1)
                    drift.append(float(belief.max() - belief[tree.tokens[child]]))
                    forgiven.append(len(decisions))
                    decision = replace(decision, rule="judge", accept=token_probs[child], verdict="accepted", probs=probs, residual=None)
                decisions.append(decision)
                if decision.verdict == "accepted":
                    hit = child
                    break
                p = decision.residual
            if hit is None:
                self._tell(state, decisions, token_probs, forgiven, drift)
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return Verdict(tuple(path), state.rng.pick("verify", p), kind, tuple(decisions), p)
            path.append(hit)
            node = hit

    def fair(self, tree: DraftTree, child: int, p: Tensor, row: Tensor, state: State) -> Decision:
        """The ordinary test of one child against the law p that earlier siblings left."""
        if not state.sampling.greedy:
            return self.test(tree, child, p, state)
        right = float(tree.tokens[child] == int(row.argmax()))
        ok, u = state.rng.flip("verify", right)
        return Decision(child, "match", right, None, right, u, "accepted" if ok else "rejected", p, None if ok else p)

    def _tell(self, state: State, decisions: list[Decision], token_probs: list[float], forgiven: list[int], drift: list[float]) -> None:
        if decisions:
            state.note("judge", chances=[round(token_probs[decision.node], 4) for decision in decisions], least=self.least, forgiven=forgiven,
                       nodes=[decision.node for decision in decisions])
        if drift:
            state.note("drift", nats=drift)
