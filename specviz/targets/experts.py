"""A target with sparse experts (models/blockffn.py): a forward pass reads the union of the experts that its rows use."""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.blockffn import BlockFFN
from .fast import FastTarget
from .rows import Rows


@dataclass(frozen=True)
class ExpertsRead:
    """The experts of a forward pass. used [layers, rows, experts], bool; expert_bytes: of one expert; other_bytes: of all other weights
    of the pass."""

    used: Tensor
    expert_bytes: int
    other_bytes: int

    def union(self, rows: int | None = None) -> int:
        """Return how many experts the first ``rows`` rows (all by default) read together, over all layers."""
        return int(self.used[:, :rows].any(1).sum())

    def unions(self) -> list[int]:
        """Return ``union`` of 1, 2, ... rows."""
        return (self.used.cumsum(1) > 0).sum((0, 2)).tolist()

    def separately(self) -> int:
        """Return how many experts the rows would read in passes of their own."""
        return int(self.used.sum())


class ExpertsModel(BlockFFN):
    """Weights of a Hugging Face folder; ``open()`` returns targets that share them. forward: name of the forward pass, for the
    trace."""

    forward = "union of experts"

    def open(self) -> ExpertsTarget:
        return ExpertsTarget(self)


class ExpertsTarget(FastTarget):
    """KV cache of one run over shared weights; the experts of the last pass are recorded."""

    capabilities = FastTarget.capabilities - {"draft_chain"} | {"experts"}
    model: ExpertsModel
    _read: ExpertsRead | None = None

    def experts_read(self) -> ExpertsRead | None:
        """Return the experts of the last forward pass of this target alone; None before it and after a batched pass."""
        return self._read

    def _layers(self, rows: Rows, x: Tensor, first: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        model, at, found, used = self.model, rows.past + rows.lo, {}, []
        rotation, mask = self._rotation(rows), self._mask(rows)
        for i, block in enumerate(model.blocks[first:end], first):
            x = model.attend(block, self._enter(rows, i, x, found), rotation, self.slots[i], at, mask)
            x, routed = model.transform_and_route(block, x)
            used.append(routed)
        self._read = ExpertsRead(torch.stack(used), model.expert_bytes, model.other_bytes)
        return x, found
