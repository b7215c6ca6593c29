"""Early exits: the first layers of a target as a draft model of their own (Kangaroo 2404.18911, LayerSkip 2404.16710).

An early exit leaves its work in the target's own scratch, and the next score() continues from there instead of running those
layers again.
"""
from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..core import DraftTree, common
from .base import CachedTarget
from .rows import Growing, Rows


@dataclass
class Work:
    """What an early exit left behind: states [1 + nodes, hidden] that enter layer ``exit``, for the root and a tree."""

    exit: int
    tree: DraftTree
    states: Growing

    def shared(self, tree: DraftTree) -> int:
        """How many first nodes of ``tree`` the work covers."""
        return common(list(zip(self.tree.tokens, self.tree.parents)), list(zip(tree.tokens, tree.parents)))


class EarlyExit:
    """The first ``exit`` layers of a target that is synced to the text. The target has ``lower`` and keeps the ``work``."""

    def __init__(self, target: CachedTarget, exit: int):
        if not 0 < exit < target.layers:
            raise ValueError(f"an exit must lie between layer 1 and layer {target.layers - 1}, not {exit}")
        self._target, self._exit = target, exit

    def step(self, tree: DraftTree, start: int = 0) -> Tensor:
        """States [rows, hidden] that enter layer ``exit``, for the root and all nodes (start 0) or the nodes from ``start`` on.

        Nodes before ``start`` are those of the last call. Raises ValueError when the last call left something else.
        """
        self._target.settle()
        target, work = self._target, self._target.work
        if work is not None and (work.exit != self._exit or work.shared(tree) < start or not start and len(work.tree)):
            work = None  # another exit or another tree: begin again
        if start and work is None:
            raise ValueError(f"the scratch does not hold the first {start} nodes of this tree")
        lo = start + 1 if start else int(work is not None and len(tree) > 0)  # a lone root is not run again
        if lo > len(tree):
            return work.states.first(lo)[lo:]
        rows = Rows(tree, target.ids_of(tree, lo), len(target.seen), lo, False)
        with target.timed():
            target.forget()
            states = target.lower(rows, self._exit)
            if lo:
                states = work.states.add(lo, states)
            target.work = Work(self._exit, tree, work.states if lo else Growing(states))
        return states[start + 1:] if start else states

    def kv(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer below the exit as the target's ``kv`` has them: of the text, of the root and of the last step's
        nodes."""
        work = self._target.work
        return self._target.kv(layer, 0 if work is None else len(work.tree) + 1)
