"""Accept a whole window of Jacobi guesses unchecked in one chosen round (FastCoT, arXiv 2311.08263)."""

from __future__ import annotations

from ....core import DraftTree, Scores, State, Verdict
from ....verifiers import TokenRejection


class Glance(TokenRejection):
    """A verifier that uses token rejection, but accepts the whole window of guesses without verification in
    round ``when`` (FastCoT, Zhang et al. 2311.08263)."""

    def __init__(self, when: int):
        self.when = when

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        verdict = super().verify(tree, scores, state)
        if state.round + 1 != self.when or len(verdict.path) == len(tree):
            return verdict
        probs = state.sampling.probs(scores.logits[-1])
        return Verdict(
            tuple(range(len(tree))), state.rng.pick("verify", probs), "unchecked", verdict.decisions, probs
        )
