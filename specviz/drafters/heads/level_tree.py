"""Grow a tree over a block level by level, so that a correction scores all nodes of a level in one batch
(DARTree, 2608.13524)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...core import Budget, DraftTree, State, TreeBuilder, token_tensor
from ...trees.draws import path_tokens
from .masked_block import BlockPassDrafter, note_reach
from .path_scores import Correction, PathScores


class LevelTree(BlockPassDrafter):
    """Drafter of a tree over a block, grown level by level (DARTree, 2608.13524): the ``width`` most
    probable paths of each depth are kept, then the ``nodes`` most probable nodes of all depths. A node's
    path probability is at most its parent's, so the kept nodes form a tree. They are chosen nodes, each
    accepted with its target probability.

    head: the block drafter; correction: scores a node given its path; branch: maximum number of children of
    a node."""

    def __init__(self, head: Any, correction: Correction, width: int, nodes: int, branch: int):
        super().__init__(head, correction)
        self.width = width
        self.nodes = nodes
        self.branch = branch

    def propose(self, state: State, budget: Budget) -> DraftTree:
        scores = self.scores(state, min(budget.gamma, self.net.length))
        if scores is None:
            return DraftTree()
        grown, costs = self._grown(scores, state, min(self.branch, budget.width))
        kept = sorted(
            sorted(range(len(costs)), key=lambda node: (costs[node], node))[: min(self.nodes, budget.nodes)]
        )
        builder, at = TreeBuilder(), {-1: -1}
        for node in kept:
            at[node] = builder.add(grown.tokens[node], at[grown.parents[node]])
        tree = builder.tree()
        if len(tree):
            with state.clock.paused():
                note_reach(scores, tree, [math.exp(-costs[node]) for node in kept], state)
        return tree

    def _grown(self, scores: PathScores, state: State, branch: int) -> tuple[TreeBuilder, list[float]]:
        """Return the wide tree and minus the log-probability of each of its nodes."""
        builder, costs = TreeBuilder(), []
        device, last = scores.block.states.device, [state.tokens[-1]]
        with torch.inference_mode():
            parents = [-1]
            above = [0.0]
            carry = scores.start()
            for position in range(len(scores)):
                logits, carry = scores.step(position, carry, token_tensor(device, last))
                paths = [path_tokens(builder, parent) for parent in parents]
                values, tokens = scores.top_tokens(position, logits, branch, paths, state)
                level = self._best(values, tokens, above)
                costs += [cost for cost, _, _ in level]
                nodes = [builder.add(token, parents[row]) for _, row, token in level]
                going = [i for i, (_, _, token) in enumerate(level) if token not in state.stop]
                if not going:
                    break
                parents, last = [nodes[i] for i in going], [level[i][2] for i in going]
                above, carry = (
                    [level[i][0] for i in going],
                    carry[token_tensor(device, [level[i][1] for i in going])],
                )
        return builder, costs

    def _best(self, values: Tensor, tokens: Tensor, above: list[float]) -> list[tuple[float, int, int]]:
        """Return (cost, row of the parent, token) of the level's best nodes, best first. values and tokens
        [parents, branch]; above: each parent's cost."""
        found = [
            (above[row] - value, row, int(token))
            for row, (line, ids) in enumerate(zip(values.double().tolist(), tokens.tolist()))
            for value, token in zip(line, ids)
            if math.isfinite(value)
        ]
        return sorted(found)[: self.width]
