"""Multi-step speculative sampling (SpecInfer, Miao et al. 2305.09781): token rejection that processes
duplicate siblings together.

Siblings with the same token are tested one by one; once one is accepted, the walk continues under all of
them. Their children were sampled without knowing which would be tested first, so the output follows the
target's distribution.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict
from .acceptance_rates import note_gap, recursive_rejection_rate
from .token_rejection import TokenRejection, verify_greedy


class MultiStep(TokenRejection):
    """Multi-step speculative sampling (SpecInfer, Miao et al. 2305.09781), and the base class of verifiers
    that process duplicate siblings together. A subclass overrides ``test_children`` and its closed form
    ``acceptance_rate``."""

    title = "multi-step speculative sampling"

    def acceptance_rate(self, p: Tensor, q: Tensor, k: int) -> float:
        """Return the probability that one of k drafts sampled independently from q [vocab] is accepted
        against p [vocab]."""
        return recursive_rejection_rate(p, q, k)

    def test_children(self, tree: DraftTree, children: list[int], p: Tensor, state: State) -> list[Decision]:
        """Test the children one after the other against p [vocab], sampled before chosen ones, up to the
        accepted one."""
        found: list[Decision] = []
        for child in sorted(children, key=lambda child: tree.draw[child] < 0):
            found.append(self.test(tree, child, found[-1].remaining if found else p, state))
            if found[-1].verdict == "accepted":
                break
        return found

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if state.sampling.greedy:
            return verify_greedy(tree, scores, state)
        note_gap(tree, scores, state, self.acceptance_rate)
        twins = [-1]
        path = []
        decisions = []
        while True:
            p = state.sampling.probs(scores.logits[twins[0] + 1])
            children = [child for node in twins for child in tree.children(node)]
            found = self.test_children(tree, children, p, state)
            decisions += found
            if not found or found[-1].verdict != "accepted":
                probs = found[-1].remaining if found else p
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return Verdict(
                    tuple(path),
                    state.rng.pick("verify", probs),
                    kind,
                    name_after_path(decisions, path),
                    probs,
                )
            token = tree.tokens[found[-1].node]
            twins = [child for child in children if tree.tokens[child] == token]
            twins.sort(key=lambda child: child != found[-1].node)
            path = tree.path(twins[0])


def name_after_path(decisions: list[Decision], path: list[int]) -> tuple[Decision, ...]:
    """Return the decisions with duplicate siblings renumbered, so that the accepted nodes are those of
    ``path``. Of several duplicates one is accepted, and only the test of the next level decides through
    which of them the path goes."""
    hits = [decision.node for decision in decisions if decision.verdict == "accepted"]
    names = {a: b for hit, node in zip(hits, path) for a, b in ((hit, node), (node, hit))}
    return tuple(replace(decision, node=names.get(decision.node, decision.node)) for decision in decisions)
