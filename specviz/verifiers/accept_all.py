"""Accept every drafted token without a test, for methods that are lossy by design."""

from __future__ import annotations

from ..core import DraftTree, Scores, State, Verdict, Verifier


class AcceptAll(Verifier):
    """Accept every token of the draft, which must be a chain, and sample the next token from the target.
    Nodes that are scored but are no candidates (``DraftTree.probes``) are ignored."""

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        path = tuple(i for i in range(len(tree)) if i not in tree.probes)
        probs = state.sampling.probs(scores.logits[len(path)])
        return Verdict(path, state.rng.pick("verify", probs), "unchecked" if path else "plain", probs=probs)
