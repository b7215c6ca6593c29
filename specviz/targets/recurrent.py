"""A state-space model as a target: its cache is a recurrent state that is checkpointed and restored, not
rows that are cropped and gathered.

Verification of a tree reads the state and never writes it (models/mamba2.py); commit applies the accepted
path to it (STree, 2505.14969). A state cannot be cropped, so snapshots are kept: of the last commits, and
of the end of the prompt. A rewind restores the latest snapshot that agrees with the text and recomputes the
tokens after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core import token_tensor
from ..models.recurrent import RecurrentNetwork
from ..models.tree_rows import RowPositions, tensors_of
from .base import CachedTarget
from .rows import Rows, shape_of

SNAPSHOTS = 8  # kept besides the longest prefill's; a draft model is rewound by a round at most


class RecurrentModel(RecurrentNetwork):
    """Weights of a Hugging Face folder with recurrent layers; ``open()`` returns targets that share them.
    forward: name of this implementation of the forward pass in the trace."""

    forward = "tree scan"

    def open(self) -> RecurrentTarget:
        """Return a target with recurrent states of its own over these weights."""
        return RecurrentTarget(self)


class RecurrentTarget(CachedTarget):
    """Target with the recurrent states of one run over shared weights. group: positions per group of
    grouped linear attention, 0 without."""

    capabilities = frozenset({"tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head"})
    max_pending = 0  # rows that wait would have to be replayed before the tree in front of which they stand

    def __init__(self, model: RecurrentModel):
        self.model, self.name = model, model.name
        self.capabilities = RecurrentTarget.capabilities | model.state_capabilities
        self.group = model.config.get("group", 0)
        self.vocab = model.vocab
        self.context = model.context
        self.hidden = model.hidden
        self.layers = model.layers
        self._states: list[Any] = model.new_states()
        self._scratch: list[Any] = [None] * model.layers
        self._snapshots: dict[int, list[Any]] = {0: self._states}  # committed tokens -> states
        self._prefilled = 0
        self._positions: list[int] = []  # of the rows of the last tree
        super().__init__()

    def embed(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids."""
        with torch.inference_mode():
            return self.model.embed(ids if isinstance(ids, Tensor) else token_tensor(self.model.device, ids))

    def head(self, states: Tensor) -> Tensor:
        """Multiply hidden states [n, hidden], to which the final norm has already been applied, by the
        output matrix (lm_head); return logits [n, vocab]."""
        with torch.inference_mode():
            return self.model.head(states)

    def norm(self, states: Tensor) -> Tensor:
        """Apply the final norm to states [n, hidden] of any layer; the result is an input of ``head``."""
        with torch.inference_mode():
            return self.model.norm(states)

    def close(self) -> None:
        """Drop the states and their snapshots."""
        super().close()
        self._snapshots, self._states = {0: self.model.new_states()}, self.model.new_states()
        self._prefilled = 0

    # --- the primitives --------------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        model, device = self.model, self.model.device
        depths = rows.shape.depth if not rows.lo else shape_of(rows.tree.parents, 0).depth
        self._positions = (rows.past + depths).tolist()
        place = RowPositions(
            rows.past, depths.to(device), rows.shape.sees.to(device), self._convolution_taps(rows).to(device)
        )
        x, found = self._entered(rows, 0, model.embed(token_tensor(device, rows.ids))), {}
        for layer in range(model.layers):
            x = self._entered(rows, layer, x) if layer else x
            if f"layer:{layer}" in self._want:
                found[f"layer:{layer}"] = x
            draft_rows = self._scratch[layer]
            before = draft_rows.first(rows.lo) if draft_rows is not None and rows.lo else None
            x, self._scratch[layer] = model.run_layer(layer, x, self._states[layer], before, place)
        x = model.norm(x)
        if "final" in self._want:
            found["final"] = x
        if rows.last:  # these rows are committed as they are run
            self._advance(list(range(len(rows.ids))), rows.past + len(rows.ids))
            self._prefilled = max(self._prefilled, rows.past + len(rows.ids))
        return model.head(x[-1:] if rows.last else x), found

    def _gather(self, past: int, rows: list[int]) -> None:
        """Do nothing; ``_keep`` replays the draft rows along the path."""

    def _keep(self, rows: list[int]) -> None:
        if rows[-1] < self._rows:
            with self.timed():
                self._advance(rows, len(self.cached_tokens) + len(rows))
        super()._keep(rows)

    def _crop(self, length: int) -> None:
        """Restore the states of ``length`` committed tokens, which ``_restorable`` has chosen."""
        self._states = self._snapshots[length]
        self._snapshots = {at: states for at, states in self._snapshots.items() if at <= length}
        self._prefilled = min(self._prefilled, length)

    def _restorable(self, keep: int) -> int:
        return max(at for at in self._snapshots if at <= keep)

    def survival(self) -> list[float]:
        """Return, for each row of the last scored tree, the share of the committed recurrent state that its
        decay leaves, averaged over the heads of all layers that decay."""
        shares = [
            share
            for layer, rows in enumerate(self._scratch)
            if rows is not None
            for share in self.model.survival(layer, rows)
        ]
        return torch.stack(shares).mean(0).tolist() if shares else []

    @property
    def state_bytes(self) -> int:
        """Bytes of all recurrent states."""
        return sum(part.nbytes for state in self._states for part in tensors_of(state))

    def groups(self) -> list[int]:
        """Return, for each row of the last scored tree, the index of its group of positions."""
        return [position // self.group for position in self._positions]

    # --- states ----------------------------------------------------------------------------------------------------
    def _advance(self, path: list[int], length: int) -> None:
        """Advance the states along draft rows, and keep a snapshot of them at ``length`` committed tokens."""
        self._states = [
            self.model.advance(layer, state, rows, path)
            for layer, (state, rows) in enumerate(zip(self._states, self._scratch))
            if rows is not None
        ]
        self._snapshots[length] = self._states
        for old in sorted(at for at in self._snapshots if at not in (0, self._prefilled))[:-SNAPSHOTS]:
            del self._snapshots[old]

    def _convolution_taps(self, rows: Rows) -> Tensor:
        """Return indices of each row's convolution inputs, [rows, kernel], the row itself last: its nearest
        ancestors, then the committed window, which comes first in the index."""
        window = self.model.longest_kernel - 1
        taps = []
        for row in range(rows.lo, len(rows.tree) + 1):
            path, at = [], row
            while at >= 0 and len(path) <= window:
                path.append(at + window)
                at = rows.tree.parents[at - 1] + 1 if at else -1
            missing = window + 1 - len(path)
            taps.append([*range(window - missing, window), *path[::-1]])
        return torch.tensor(taps)

    def _entered(self, rows: Rows, layer: int, x: Tensor) -> Tensor:
        """Return the states that enter a layer, with entry rows replaced."""
        for entry, where in rows.entries(layer):
            made: Any = entry.make(x)
            x = x.index_copy(0, torch.tensor(where, device=x.device), made.to(x.dtype))
        return x
