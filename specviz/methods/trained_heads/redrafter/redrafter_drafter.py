"""Draft by beam search with a recurrent head: ReDrafter (Zhang et al. 2403.09919).

Every step extends all beams and keeps the most probable. The target scores the tree of their merged
prefixes ("dynamic tree attention"). The authors' rule at temperatures above 0 is not exact; here beams are
chosen nodes, each accepted with its target probability, which is.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ....core import Budget, DraftTree, State, token_tensor
from ....drafters.heads.last_state import LastStateDrafter
from ....drafters.heads.recurrent import merged_paths
from ....trees.draws import top_k_entries

FEW = 50  # most probable tokens of a step that beams may take, as the authors have it


class BeamTree(LastStateDrafter):
    """Drafter by beam search with ReDrafter's recurrent head (Zhang et al. 2403.09919); the beams are
    merged into a tree of chosen nodes. width: number of beams."""

    needs = frozenset({"tap:final", "head", "embed"})

    def __init__(self, head: Any, width: int):
        self.heads, self.width = head, width

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if self.last is None or budget.gamma < 1:
            return DraftTree()
        width, net = self.width if budget.width > 1 else 1, self.heads
        values, levels = torch.zeros(1, dtype=self.last.dtype, device=self.last.device), []
        states, tokens = torch.zeros_like(self.last)[None], token_tensor(self.last.device, state.tokens[-1:])
        above: list[tuple[int, ...]] = [()]  # drafted tokens of each beam, for logits processors
        with torch.inference_mode():
            for _ in range(budget.gamma):
                states = net.step(states, self.target.embed(tokens))
                logits = net.logits(self.last.expand(len(states), -1), states, self.target.head)
                logits = state.process_draft_logits(logits, above)
                few = logits.topk(min(FEW, logits.shape[-1]), -1)
                values, rows, places = top_k_entries(values[:, None] + few.values.log_softmax(-1), width)
                tokens = few.indices.flatten().index_select(0, rows * few.indices.shape[1] + places)
                if state.processors:
                    above = [(*above[row], token) for row, token in zip(rows.tolist(), tokens.tolist())]
                states = states.index_select(0, rows)
                levels.append(torch.stack([rows, tokens]).double().flatten())
        scores, at, paths = (
            torch.cat([values.double(), *levels]).tolist(),
            len(values),
            [()],
        )  # all levels in one go
        for level in levels:
            rows_of_it, tokens_of_it = (
                scores[at : at + len(level) // 2],
                scores[at + len(level) // 2 : at + len(level)],
            )
            paths, at = (
                [(*paths[int(row)], int(token)) for row, token in zip(rows_of_it, tokens_of_it)],
                at + len(level),
            )
        found = [(value, path) for value, path in zip(scores, paths) if value > -math.inf]
        scores, paths = [value for value, _ in found], [path for _, path in found]
        build = merged_paths(paths)
        state.note(
            "beam",
            nodes=len(build),
            apart=sum(map(len, paths)),
            beams=[{"tokens": list(path), "chance": math.exp(value)} for path, value in zip(paths, scores)],
        )
        return build.tree()
