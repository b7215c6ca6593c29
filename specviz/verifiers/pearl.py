"""PEARL's verification of a chain whose last token the target has not processed yet (Liu et al. 2408.11850).

The target scores the root and all tokens but the last while the draft model continues drafting. A row of
scores verifies the token after it, so these rows verify every token of the chain. If all are accepted, the
last token ends the round, because there is no row from which to sample a bonus token. Each token is
verified by ordinary rejection sampling, so the output follows the target's distribution.
"""

from __future__ import annotations

from ..core import DraftTree, IncompatibleVerifier, Scores, State, Verdict
from .token_rejection import TokenRejection


class PearlVerification(TokenRejection):
    """Rejection sampling for a chain whose last token the target may not have processed yet (PEARL, Liu et
    al. 2408.11850).

    scores.logits [rows, vocab]: as many rows as the chain has tokens, or one more; only with one more a
    bonus token follows a fully accepted chain.
    """

    def check(self, tree: DraftTree) -> None:
        super().check(tree)
        if tree.parents != tuple(range(-1, len(tree) - 1)):
            raise IncompatibleVerifier(
                "PEARL's verification verifies chains; the drafter proposed a tree: use TokenRejection",
                "verifier.chains_only",
            )

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        decisions = []
        count = len(tree)
        path = tuple(range(len(tree)))
        for node in range(count):
            decision = self.test(tree, node, state.sampling.probs(scores.logits[node]), state)
            decisions.append(decision)
            if decision.verdict == "rejected":
                probs = decision.residual
                return Verdict(
                    path[:node], state.rng.pick("verify", probs), "correction", tuple(decisions), probs
                )
        if len(scores.logits) == count:
            return Verdict(path[:-1], tree.tokens[-1], "accepted", tuple(decisions))
        probs = state.sampling.probs(scores.logits[count])
        return Verdict(
            path, state.rng.pick("verify", probs), "bonus" if count else "plain", tuple(decisions), probs
        )
