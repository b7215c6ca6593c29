"""A target with sparse experts (models/blockffn.py): a forward pass reads the union of the experts that its
rows use."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.blockffn import BlockFFN
from .fast import FastTarget
from .rows import Rows


@dataclass(frozen=True)
class ExpertsRead:
    """The experts that a forward pass used. used: bool [layers, rows, experts]; expert_bytes: size of one
    expert; other_bytes: size of all other weights of the pass."""

    used: Tensor
    expert_bytes: int
    other_bytes: int

    def union(self, rows: int | None = None) -> int:
        """Return how many experts the first ``rows`` rows (default: all) use together, summed over the
        layers."""
        return int(self.used[:, :rows].any(1).sum())

    def unions(self) -> list[int]:
        """Return ``union(n)`` for n = 1, 2, ... rows."""
        return (self.used.cumsum(1) > 0).sum((0, 2)).tolist()

    def separately(self) -> int:
        """Return how many experts would be read if each row had a forward pass of its own, summed over the
        layers."""
        return int(self.used.sum())


class ExpertsModel(BlockFFN):
    """Weights of a Hugging Face folder with sparse experts (BlockFFN); ``open()`` returns targets that
    share them. forward: name of this implementation of the forward pass in the trace."""

    forward = "union of experts"

    def open(self) -> ExpertsTarget:
        """Return a target with a KV cache of its own over these weights."""
        return ExpertsTarget(self)


class ExpertsTarget(FastTarget):
    """Target with the KV cache of one run over shared weights with sparse experts; records which experts
    the last pass used."""

    capabilities = FastTarget.capabilities - {"draft_chain", "draft_path"} | {"experts"}
    model: ExpertsModel
    _read: ExpertsRead | None = None

    def experts_read(self) -> ExpertsRead | None:
        """Return the experts of the last forward pass of this target alone; None before the first pass and
        after a batched pass."""
        return self._read

    def _layers(self, rows: Rows, x: Tensor, first: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        model = self.model
        at = rows.past + rows.lo
        found = {}
        used = []
        rotation, mask = self._rotation(rows), self._mask(rows)
        for i, block in enumerate(model.blocks[first:end], first):
            x = model.attend(block, self._enter(rows, i, x, found), rotation, self.slots[i], at, mask)
            x, routed = model.transform_and_route(block, x)
            used.append(routed)
        self._read = ExpertsRead(torch.stack(used), model.expert_bytes, model.other_bytes)
        return x, found
