"""Block verification: a drafted chain is judged as a whole (Sun et al. 2403.10444).

The longest prefix is kept whose joint ratio passes, also over a token that would have failed alone; the accepted length is at
least that of token rejection on average, the output law the same. It is the walk of traversal verification on a chain; chosen
tokens count as drawn from the law that has only them, where it equals token rejection.
"""
from __future__ import annotations

from ..core import CHOSEN, IID, DraftTree, IncompatibleVerifier, compatible_verifiers
from .traversal import Traversal


class BlockVerification(Traversal):
    labels = frozenset({CHOSEN, IID})
    title = "block verification (chains)"

    def check(self, tree: DraftTree) -> None:
        super().check(tree)
        if any(len(tree.children(node)) > 1 for node in range(-1, len(tree))):
            raise IncompatibleVerifier("block verification judges chains; the drafter proposed a tree: lawful is "
                               + ", ".join(title for title in compatible_verifiers({tree.label(i) for i in range(len(tree))}) if title != self.title))
