"""Early exits: the first layers of a target as a draft model (Kangaroo 2404.18911, LayerSkip 2404.16710).

An early exit leaves the hidden states of its draft rows (root and draft nodes, not committed yet) in the
target. The next score() continues from them instead of running these layers again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..core import DraftTree, common_prefix_length
from ..core.errors import InvalidUse
from ..models.llama import Llama
from .rows import AppendableRows, Rows


@dataclass
class ExitStates:
    """The result of an early exit: hidden states [1 + nodes, hidden] at the input of layer ``exit``, for
    the root and the nodes of a tree."""

    exit: int
    tree: DraftTree
    states: AppendableRows

    def shared(self, tree: DraftTree) -> int:
        """Return for how many leading nodes of ``tree`` these hidden states are valid."""
        return common_prefix_length(
            list(zip(self.tree.tokens, self.tree.parents)), list(zip(tree.tokens, tree.parents))
        )


class ExitTarget(Protocol):
    """What an early exit needs of its target: a CachedTarget of the Llama family. work: the hidden states
    of its last early exit; run_lower_layers: runs the layers before the exit; the other members: see
    CachedTarget."""

    layers: int
    cached_tokens: list[int]
    work: ExitStates | None

    @property
    def model(self) -> Llama:
        """The weights."""
        ...

    def kv(self, layer: int, draft_rows: int = 0) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values, as LlamaTarget.kv."""
        ...

    def run_lower_layers(self, rows: Rows, exit: int) -> Tensor:
        """Return the states [rows, hidden] at the input of layer ``exit``."""
        ...

    def row_token_ids(self, tree: DraftTree, lo: int) -> list[int]:
        """Return the token ids of the draft rows from ``lo`` on."""
        ...

    def timed(self) -> AbstractContextManager[None]:
        """Context manager around a forward pass, which measures it."""
        ...

    def flush(self) -> None:
        """Compute the tokens that ``sync`` deferred."""
        ...

    def drop_draft_rows(self) -> None:
        """Drop the draft rows and the states of the last early exit."""
        ...


class EarlyExit:
    """The layers of a target before layer ``exit``, as a draft model; the target must be synced to the
    text. Raises ValueError for a layer that the target does not have."""

    def __init__(self, target: ExitTarget, exit: int):
        if not 0 < exit < target.layers:
            raise ValueError(f"the exit layer must be between 1 and {target.layers - 1}, not {exit}")
        self._target, self._exit = target, exit

    def step(self, tree: DraftTree, start: int = 0) -> Tensor:
        """Return the hidden states [rows, hidden] at the input of layer ``exit``: for the root and all
        nodes if start is 0, else for the nodes from ``start`` on.

        The first ``start`` nodes must be those of the last call; else InvalidUse (a ValueError) is raised.
        """
        self._target.flush()
        target, work = self._target, self._target.work
        if work is not None and (
            work.exit != self._exit or work.shared(tree) < start or not start and len(work.tree)
        ):
            work = None  # another exit or another tree: start over
        if start and work is None:
            raise InvalidUse(
                f"the draft rows are not those of the first {start} nodes of this tree", "target.scratch"
            )
        lo = start + 1 if start else int(work is not None and len(tree) > 0)  # a lone root is not run again
        if work is not None and lo > len(tree):
            return self._target.model.to_checkpoint(work.states.first(lo)[lo:])
        rows = Rows(tree, target.row_token_ids(tree, lo), len(target.cached_tokens), lo, False)
        with target.timed():
            target.drop_draft_rows()
            states = target.run_lower_layers(rows, self._exit)
            if work is not None and lo:
                states = work.states.add(lo, states)
            target.work = ExitStates(
                self._exit, tree, work.states if work is not None and lo else AppendableRows(states)
            )
        return self._target.model.to_checkpoint(states[start + 1 :] if start else states)

    def kv(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [kv_heads, rows, head_dim], of a layer before the exit: of the text,
        the root, and the nodes of the last step."""
        work = self._target.work
        return self._target.kv(layer, 0 if work is None else len(work.tree) + 1)
