"""Draft a block by Jacobi iteration of a refiner: every pass scores all positions at once, given the tokens of
the pass before (XPress, 2608.02438)."""

from __future__ import annotations

from typing import Any

import torch

from ....core import Budget, DraftTree, State, token_tensor
from ....drafters.heads.masked_block import BlockPassDrafter


class RefinedBlock(BlockPassDrafter):
    """Drafter of a chain of chosen tokens: the block drafter's top-1 tokens, refined ``passes`` times. It stops
    early when a pass changes nothing, because later ones would not either."""

    def __init__(self, head: Any, refiner: Any, passes: int):
        super().__init__(head, refiner)
        self.passes = passes

    def propose(self, state: State, budget: Budget) -> DraftTree:
        scores: Any = self.scores(state, min(budget.gamma, self.net.length))
        if scores is None:
            return DraftTree()
        grid = [self._best(scores, scores.base, [], state)]
        with torch.inference_mode():
            for _ in range(self.passes):
                before = token_tensor(scores.base.device, [state.tokens[-1], *grid[-1][:-1]])
                logits = scores.all_at_once(before[: len(scores)])
                found = self._best(scores, logits, grid[-1], state)
                grid.append(found)
                if found == grid[-2]:
                    break
        tokens = grid[-1]
        if tokens:
            state.note(
                "refined",
                rows=[{"tokens": row} for row in grid],
                changed=[
                    sum(a != b for a, b in zip(row, above)) + abs(len(row) - len(above))
                    for above, row in zip(grid, grid[1:])
                ],
            )
        return DraftTree.chain(tokens)

    def _best(self, scores: Any, logits: Any, guesses: list[int], state: State) -> list[int]:
        """Return the top-1 token of each position, from its candidates' logits [positions, m]. Logits processors
        of the request see the guesses of the pass before; the block ends at a position where they allow no
        candidate."""
        if not state.processors:
            at = logits.argmax(-1, keepdim=True)
            return scores.ids.gather(1, at)[:, 0].tolist()
        found: list[int] = []
        for position in range(len(scores)):
            path = tuple(guesses[:position]) if len(guesses) >= position else tuple(found)
            values, tokens = scores.top_tokens(position, logits[position][None], 1, [path], state)
            if not bool(values.isfinite().all()):
                break
            found.append(int(tokens[0, 0]))
        return found
