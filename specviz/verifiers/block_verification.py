"""Block verification: a drafted chain is verified as a whole (Sun et al. 2403.10444).

The longest prefix that passes the test of its joint probability ratio is kept, even after a token that
would have been rejected alone. The mean accepted length is at least that of token rejection, with the same
output distribution. This is traversal verification on a chain. A chosen token counts as sampled from a
one-hot distribution, where the rule equals token rejection.
"""

from __future__ import annotations

from ..core import CHOSEN, IID, DraftTree, IncompatibleVerifier, compatible_verifiers
from .traversal import Traversal


class BlockVerification(Traversal):
    """Verify a chain by the joint probability ratio of its prefixes (Sun et al. 2403.10444). ``check``
    raises IncompatibleVerifier for a tree."""

    labels = frozenset({CHOSEN, IID})
    title = "block verification (chains)"

    def check(self, tree: DraftTree) -> None:
        super().check(tree)
        if any(len(tree.children(node)) > 1 for node in range(-1, len(tree))):
            labels = {tree.label(i) for i in range(len(tree))}
            raise IncompatibleVerifier(
                "block verification verifies chains; the drafter proposed a tree: compatible is "
                + ", ".join(title for title in compatible_verifiers(labels) if title != self.title),
                "verifier.chains_only",
            )
