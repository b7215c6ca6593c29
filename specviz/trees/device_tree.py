"""A draft tree that grows on a device: tokens, parents and attention mask stay there; the host knows only the size of each level.
"""
from __future__ import annotations

import torch
from torch import Tensor

from ..core import DeviceTopology, DraftTree, ScoringModel, lazy_ints


class DeviceTree:
    """The part of a device tree that the draft model has scored, grown level by level. rows: logits after the root;
    most: maximum number of rows, including the root's."""

    def __init__(self, rows: Tensor, most: int):
        device = rows.device
        self._sees = torch.zeros(most, most, dtype=torch.bool, device=device)
        self._sees[:1, :1].fill_(True)
        self._parents = torch.empty(0, dtype=torch.int64, device=device)
        self._tree = DraftTree()
        self._frontier = (-1, 1)  # the first of its nodes, and how many

    def rows(self, model: ScoringModel, tokens: Tensor, at: Tensor) -> Tensor:
        """Add a level of nodes and return logits [n, vocab] after them; at [n]: index of each one's parent in the level before."""
        count, n, (first, width) = len(self._tree), len(tokens), self._frontier
        sees = self._sees[1 + count:1 + count + n]
        sees.copy_(self._sees[1 + first:1 + first + width].index_select(0, at))
        sees[:, 1 + count:1 + count + n].fill_diagonal_(True)
        above = at + first
        self._parents = torch.cat([self._parents, above])
        depth = self._tree.depths[first] + 1 if count else 1
        device_topology = DeviceTopology((*self._tree.depths, *[depth] * n), self._parents, self._sees[:1 + count + n, :1 + count + n])
        self._tree = DraftTree((*self._tree.tokens, *lazy_ints(tokens)), (*self._tree.parents, *lazy_ints(above)), (-1,) * (count + n),
                               device_topology=device_topology)
        self._frontier = count, n
        return model.score(self._tree, count).logits[-n:]
