"""Judge decoding (Bachmann et al. 2501.19309): a rejected token is kept if a network on the target's hidden
states accepts it.

The rule is lossy; its deviation is noted as drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict
from .token_rejection import TokenRejection


class JudgeDecoding(TokenRejection):
    """Lossy verifier that keeps a rejected token if a trained network, the judge, accepts it (Judge
    decoding, Bachmann et al. 2501.19309).

    judge: the target's final hidden states [n, hidden] at the drafted tokens -> probabilities [n] that the
    tokens are acceptable. Each child is tested by rejection sampling, and, if it is rejected, by the judge:
    it is kept if its probability is above ``min_prob``, so that 1 is ordinary rejection sampling.

    The note "drift": for each token kept by the judge, the log-probability of the argmax minus that of the
    token, in nats.
    """

    hidden_states = frozenset({"final"})
    title = "a judge (lossy)"

    def __init__(self, judge: Callable[[Tensor], Tensor], min_prob: float = 0.5):
        self.judge, self.min_prob = judge, min_prob

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        with torch.inference_mode():
            token_probs = (
                self.judge(scores.hidden_states["final"][1 : len(tree) + 1]).tolist() if len(tree) else []
            )
        node = -1
        path = []
        decisions = []
        drift = []
        forgiven = []
        while True:
            row, children = scores.logits[node + 1], tree.children(node)
            probs = p = state.sampling.probs(row)
            hit = None
            for child in children:
                decision = self.test_child(tree, child, p, row, state)
                overruled = decision.verdict != "accepted" and token_probs[child] > self.min_prob
                if (
                    overruled and float(row[tree.tokens[child]]) > -math.inf
                ):  # a mask of the request is no matter of taste
                    belief = row.float().log_softmax(-1)
                    drift.append(float(belief.max() - belief[tree.tokens[child]]))
                    forgiven.append(len(decisions))
                    decision = replace(
                        decision,
                        rule="judge",
                        accept=token_probs[child],
                        verdict="accepted",
                        probs=probs,
                        residual=None,
                    )
                decisions.append(decision)
                if decision.verdict == "accepted":
                    hit = child
                    break
                p = decision.remaining
            if hit is None:
                self._note(state, decisions, token_probs, forgiven, drift)
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return Verdict(tuple(path), state.rng.pick("verify", p), kind, tuple(decisions), p)
            path.append(hit)
            node = hit

    def test_child(self, tree: DraftTree, child: int, p: Tensor, row: Tensor, state: State) -> Decision:
        """Test one child by rejection sampling against p [vocab], the residual distribution after its
        earlier siblings; at temperature 0 against the argmax of ``row``, the target's logits [vocab]."""
        if not state.sampling.greedy:
            return self.test(tree, child, p, state)
        right = float(tree.tokens[child] == int(row.argmax()))
        ok, u = state.rng.flip("verify", right)
        return Decision(
            child, "match", right, None, right, u, "accepted" if ok else "rejected", p, None if ok else p
        )

    def _note(
        self,
        state: State,
        decisions: list[Decision],
        token_probs: list[float],
        forgiven: list[int],
        drift: list[float],
    ) -> None:
        if decisions:
            nodes = [decision.node for decision in decisions]
            chances = [round(token_probs[node], 4) for node in nodes]
            state.note("judge", chances=chances, least=self.min_prob, forgiven=forgiven, nodes=nodes)
        if drift:
            state.note("drift", nats=drift)
