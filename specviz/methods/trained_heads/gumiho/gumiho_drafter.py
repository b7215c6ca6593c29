"""Draft with Gumiho's head (arXiv 2503.10135): the first two levels of the tree by EAGLE's layers, one
level at a time, all later ones by MLPs that run at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ....core import Budget, DraftTree, Scores, State, select_rows
from ....drafters.heads.features import FeatureDrafter, FeatureModel
from .gumiho_network import SERIAL


class SerialThenParallel(FeatureModel):
    """Gumiho's head on the target's hidden states during one run, with the interface of FeatureModel.
    Levels up to ``SERIAL`` are predicted as by EAGLE's head. The nodes of level ``SERIAL`` give all later
    levels: a node there depends on its ancestors up to that level, not on the tokens between. passes:
    forward passes of EAGLE's layers in this round."""

    passes = 0  # of the layers, in this round

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the Scores with logits [len(tree) - start, vocab] after the nodes from ``start`` on, which
        must have one depth; for an empty tree [1, vocab] after the root."""
        depth = tree.depths[start] if len(tree) else 0
        with torch.inference_mode():
            if depth < SERIAL:
                self._joined = self._fc(tree, start) if depth else None
                self.passes = 1 + depth
                return super().score(tree, start)
            above = self._parents(tree, start)
            if depth == SERIAL:
                assert self._joined is not None  # of the level above
                pairs = torch.cat([_rows(self._joined, above), self._fc(tree, start)], -1)
                later = self.net.later(pairs)  # [nodes, places, hidden]
                logits = self.net.logits(later.flatten(0, 1).to(self._kind), self.target.head)
                self._later = logits.view(*later.shape[:2], -1)  # of all later levels at once
                self._owner, self._first = torch.arange(len(later), device=later.device), start
            else:
                at = (
                    above - self._first
                    if isinstance(above, Tensor)
                    else torch.tensor([parent - self._first for parent in above])
                )
                self._owner, self._first = self._owner.index_select(0, at.to(self._owner.device)), start
            return Scores(self._later[self._owner, depth - SERIAL])

    def _fc(self, tree: DraftTree, start: int) -> Tensor:
        """Return the output of ``fc`` [nodes, hidden] for the nodes from ``start`` on."""
        return self.rows._joined(self.target.embed(tree.tokens[start:]), self.parent_outputs(tree, start))

    def _parents(self, tree: DraftTree, start: int) -> Sequence[int] | Tensor:
        return tree.parents[start:] if tree.device_topology is None else tree.device_topology.parents[start:]


class GumihoTree(FeatureDrafter):
    """Drafter of a tree with Gumiho's head (Li et al. 2503.10135). The note "serial_parallel" reports which
    levels EAGLE's layers predicted and which the MLPs."""

    model_class = SerialThenParallel
    model: SerialThenParallel

    def propose(self, state: State, budget: Budget) -> DraftTree:
        self.model.passes = 0
        tree = super().propose(state, budget)
        if len(tree):
            deepest = max(tree.depths)
            levels = [tree.depths.count(level) for level in range(1, deepest + 1)]
            state.note(
                "serial_parallel", passes=self.model.passes, serial=min(SERIAL, deepest), levels=levels
            )
        return tree


def _rows(x: Tensor, index: Sequence[int] | Tensor) -> Tensor:
    return x.index_select(0, index) if isinstance(index, Tensor) else select_rows(x, list(index))
