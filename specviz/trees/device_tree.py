"""A draft tree that grows on a device: tokens, parents and attention mask stay there; the host knows only
the size of each level."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import DeviceTopology, DraftTree, ScoringModel, lazy_ints


class DeviceTree:
    """A draft tree whose tokens, parents and attention mask stay on the device. It grows by one level per
    forward pass of the draft model.

    root_logits [..., vocab]: the logits after the root (only their device is used); max_nodes: maximum size
    of the tree, including the root."""

    def __init__(self, root_logits: Tensor, max_nodes: int):
        device = root_logits.device
        self._sees = torch.zeros(max_nodes, max_nodes, dtype=torch.bool, device=device)
        self._sees[:1, :1].fill_(True)
        self._parents = torch.empty(0, dtype=torch.int64, device=device)
        self._tree = DraftTree()
        self._frontier = (-1, 1)  # the first of its nodes, and how many

    def score_level(self, model: ScoringModel, tokens: Tensor, parents: Tensor) -> Tensor:
        """Add a level of n nodes, score them with the draft model, and return the logits [n, vocab] after
        them.

        tokens [n]: their tokens; parents [n]: index of each node's parent in the level before, 0 for the
        root's children."""
        count, n, (first, width) = len(self._tree), len(tokens), self._frontier
        sees = self._sees[1 + count : 1 + count + n]
        sees.copy_(self._sees[1 + first : 1 + first + width].index_select(0, parents))
        sees[:, 1 + count : 1 + count + n].fill_diagonal_(True)
        above = parents + first
        self._parents = torch.cat([self._parents, above])
        depth = self._tree.depths[first] + 1 if count else 1
        device_topology = DeviceTopology(
            (*self._tree.depths, *[depth] * n), self._parents, self._sees[: 1 + count + n, : 1 + count + n]
        )
        self._tree = DraftTree(
            (*self._tree.tokens, *lazy_ints(tokens)),
            (*self._tree.parents, *lazy_ints(above)),
            (-1,) * (count + n),
            device_topology=device_topology,
        )
        self._frontier = count, n
        return model.score(self._tree, count).logits[-n:]
