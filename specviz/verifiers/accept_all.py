"""Accept every drafted token without a test, for methods that are lossy by design."""
from __future__ import annotations

from ..core import DraftTree, Scores, State, Verdict, Verifier


class AcceptAll(Verifier):
    """Accept the whole draft, which must be a chain, and sample the token after it. Probes under the chain are ignored."""

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        path = tuple(i for i in range(len(tree)) if i not in tree.probes)
        probs = state.sampling.probs(scores.logits[len(path)])
        return Verdict(path, state.rng.pick("verify", probs), "unchecked" if path else "plain", probs=probs)
