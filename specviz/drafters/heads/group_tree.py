"""Medusa's tree on a target with linear attention: which of its rows lie beyond a group's border (You et
al. 2406.07368)."""

from __future__ import annotations

from ...core import Outcome, State
from .last_state import MedusaTree


class GroupTree(MedusaTree):
    """Drafter of Medusa's tree on a target with linear attention in groups of positions (You et al.
    2406.07368). After each round the note "groups" tells in which group of positions the root and each node
    lie."""

    needs = MedusaTree.needs | {"state:groups"}

    def observe(self, state: State, outcome: Outcome) -> None:
        super().observe(state, outcome)
        groups, size = self.target.groups()[: len(outcome.tree) + 1], self.target.group
        at = len(state.tokens) - len(outcome.committed) - 1
        state.note("groups", group=groups, size=size, at=at, complete=at // size)
