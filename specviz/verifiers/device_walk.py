"""Token rejection precomputed on the device, so that a round synchronises once.

Which children are rejected is random. But the residual distribution after each rejection, and how many
uniform numbers were used when the walk reaches a node, do not depend on the outcome. So the acceptance
probability of every node, and the token that would end the walk at every node, are computed in advance on
the device, one rank of siblings after the other. The walk on the host then only reads numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import WITHOUT_REPLACEMENT, DraftTree, Sampling, Scores, State, token_tensor
from ..core.sampling import sample_rows


class PrecomputedWalk:
    """Token rejection of a draft tree, computed for all nodes in advance on the device.

    asked [3 * nodes + 1], on the device: for each node its target probability after rejection of its
    earlier siblings; for each node its draft probability (0 for a chosen node); for the root and each node
    the next token if the accepted path ends there. values: the same on the host, filled in before
    verification.

    distributions, residuals: for each node, the distribution [vocab] that it is tested against, and the
    residual distribution after its rejection; end_probs: for the root and each node, the distribution of
    the next token if the path ends there."""

    def __init__(self, tree: DraftTree, scores: Scores, state: State):
        nodes = len(tree)
        self.tree, self.values = tree, []
        self.distributions: dict[int, Tensor] = {}
        self.residuals: dict[int, Tensor] = {}
        self.end_probs: list[Tensor] = list(state.sampling.probs(scores.logits))
        token_probs = [self._siblings(level, scores.logits) for level in _by_rank(tree)]
        order = [node for level in _by_rank(tree) for node in level]
        place = {node: at for at, node in enumerate(order)}
        uniforms = state.rng.ahead("verify", max(self._rolled(row) for row in range(-1, nodes)) + 1)
        ends = sample_rows(
            torch.stack(self.end_probs), [uniforms[self._rolled(row)] for row in range(-1, nodes)]
        )
        empty = ends.new_empty(0, dtype=torch.float64)
        both = torch.cat([empty.view(2, 0), *token_probs], 1)
        both = (
            both.index_select(1, token_tensor(both.device, [place[node] for node in range(nodes)]))
            if nodes
            else both
        )
        self.asked = torch.cat([both.flatten(), ends.double()])

    def token_probs(self, node: int) -> tuple[float, float | None]:
        """Return a node's target probability and its draft probability, None for a chosen node."""
        return self.values[node], None if self.tree.draw[node] < 0 else self.values[len(self.tree) + node]

    def end_token(self, row: int) -> int:
        """Return the next token if the accepted path ends at ``row`` (0: the root, i + 1: node i)."""
        return int(self.values[2 * len(self.tree) + row])

    def _siblings(self, level: list[int], logits: Tensor) -> Tensor:
        """Reject children of different parents and equal rank; return their target and draft probabilities
        [2, nodes]."""
        tree, device = self.tree, logits.device
        rows = [tree.parents[node] + 1 for node in level]
        tokens = token_tensor(device, [tree.tokens[node] for node in level])[:, None]
        distributions = torch.stack([self.end_probs[row] for row in rows])
        drawn_from = [(probs, self._probs(node)) for probs, node in zip(distributions, level)]
        drafts = torch.stack(
            [torch.zeros_like(probs) if q is None else q.to(probs) for probs, q in drawn_from]
        )
        chosen = token_tensor(device, [tree.draw[node] < 0 for node in level]).bool()[:, None]
        rest = torch.where(
            chosen, distributions.scatter(1, tokens, 0.0), (distributions - drafts).clamp_(min=0)
        )
        mass = rest.sum(-1, keepdim=True)
        residuals = torch.where(mass > 0, rest / mass, distributions)
        for at, (node, row) in enumerate(zip(level, rows)):
            self.distributions[node], self.residuals[node], self.end_probs[row] = (
                distributions[at],
                residuals[at],
                residuals[at],
            )
        return torch.cat([distributions.gather(1, tokens), drafts.gather(1, tokens)], 1).T.double()

    def _probs(self, node: int) -> Tensor | None:
        """Return the same as ``tree.draft_probs``, which would read the tokens."""
        tree, k = self.tree, self.tree.draw[node]
        if k < 0:
            return None
        assert tree.probs is not None  # a draw has a distribution
        row = tree.probs[k]
        if tree.drawn[k] == WITHOUT_REPLACEMENT:
            gone = [
                tree.tokens[j] for j in tree.children(tree.parents[node]) if j < node and tree.draw[j] == k
            ]
            if gone:
                row = row.index_fill(0, token_tensor(row.device, gone), 0.0)
                row = row / row.sum()
        return row

    def _rolled(self, row: int) -> int:
        """Return how many uniforms are used when the walk ends at a row: one per child tried on the way."""
        tree, count = self.tree, len(self.tree.children(row))
        while row >= 0:
            count += tree.children(tree.parents[row]).index(row) + 1
            row = tree.parents[row]
        return count


def _by_rank(tree: DraftTree) -> list[list[int]]:
    """Return first children, second children, ..."""
    levels: list[list[int]] = []
    for node in range(-1, len(tree)):
        for rank, child in enumerate(tree.children(node)):
            if rank == len(levels):
                levels.append([])
            levels[rank].append(child)
    return levels


def can_precompute(sampling: Sampling, tree: DraftTree) -> bool:
    """Return whether token rejection of the tree can be precomputed: at temperatures above 0, if every node
    is a candidate."""
    return not sampling.greedy and not tree.probes
