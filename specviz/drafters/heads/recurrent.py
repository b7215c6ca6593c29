"""Draft with levels that pass a recurrent state on; each level reads the token drafted before it:
MLPSpeculator (Wertheimer et al. 2404.19124).

Each level extends every path by its most probable tokens. Of all full-length paths the best are kept, by
the sum of their log-probabilities. Paths with a common prefix share nodes. All nodes are chosen, so each is
accepted with its target probability, which is exact.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...core import Budget, DraftTree, State, TreeBuilder, token_tensor
from ...trees import top_log_probs
from .last_state import LastStateDrafter


class MlpSpeculatorTree(LastStateDrafter):
    """Drafter of a tree with MLPSpeculator's heads (Wertheimer et al. 2404.19124): the most probable paths
    through the levels.

    heads: the trained draft heads, one per level; paths: number of paths kept; top: tokens by which each
    level extends a path; 0: the number that the heads' configuration gives."""

    needs = frozenset({"tap:final"})

    def __init__(self, heads: Any, paths: int, top: int = 0):
        self.heads, self.paths = heads, paths
        self.top = (top,) * len(heads) if top else heads.top

    def propose(self, state: State, budget: Budget) -> DraftTree:
        depth = min(budget.gamma, len(self.heads))
        if self.last is None or depth < 1:
            return DraftTree()
        states = self.last[None]
        tokens = token_tensor(self.last.device, state.tokens[-1:])
        levels = []
        values = torch.zeros(1, dtype=torch.float64, device=self.last.device)  # log-probability of each path
        above: list[tuple[int, ...]] = [()]  # drafted tokens on each path, for logits processors
        with torch.inference_mode():
            for level in range(depth):
                states = self.heads.step(level, states, tokens)
                logits = state.process_draft_logits(self.heads.logits(level, states), above)
                token_probs, ids = top_log_probs(logits, min(self.top[level], budget.width))
                if state.processors:
                    above = [(*path, token) for path, row in zip(above, ids.tolist()) for token in row]
                token_probs = values[:, None] + token_probs.double()
                values = token_probs.flatten()
                tokens = ids.flatten()
                states = states.repeat_interleave(ids.shape[1], 0)
                levels.append(tokens.double())
            scores = torch.cat([values, *levels]).tolist()  # all levels in one go
        ends, at = len(values), len(values)
        paths: list[tuple[int, ...]] = [()] * ends
        for level in levels:
            tokens_of, at = scores[at : at + len(level)], at + len(level)
            paths = [(*path, int(tokens_of[i * len(level) // ends])) for i, path in enumerate(paths)]
        found = [(score, path) for score, path in zip(scores[:ends], paths) if score > -math.inf]
        kept = sorted(found, key=lambda path: -path[0])[: self.paths if budget.width > 1 else 1]
        return merged_paths([path for _, path in kept]).tree()


def merged_paths(paths: list[tuple[int, ...]]) -> TreeBuilder:
    """Return a tree of chosen nodes that holds the given paths (tokens after the root), with common
    prefixes merged."""
    builder = TreeBuilder()
    at: dict[tuple[int, ...], int] = {(): -1}
    for path in paths:
        for end in range(1, len(path) + 1):
            if path[:end] not in at:
                at[path[:end]] = builder.add(path[end - 1], at[path[: end - 1]])
    return builder
