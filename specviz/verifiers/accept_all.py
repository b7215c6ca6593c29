"""No test at all: what was drafted is written. For methods that are lossy by design and say so."""
from __future__ import annotations

from ..core import DraftTree, Scores, State, Verdict, Verifier


class AcceptAll(Verifier):
    """Keeps the whole draft, which must be a chain, and draws the token after it. Probes behind it are left alone."""

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        path = tuple(i for i in range(len(tree)) if i not in tree.probes)
        probs = state.sampling.probs(scores.logits[len(path)])
        return Verdict(path, state.rng.pick("verify", probs), "unchecked" if path else "plain", probs=probs)
