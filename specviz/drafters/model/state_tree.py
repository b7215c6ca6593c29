"""Draft trees for a target whose layers carry states (STree: Wu et al., 2505.14969)."""
from __future__ import annotations

from ...core import CapableTarget, Outcome, Scores, State
from .chain import DraftShape


class StateTree(DraftShape):
    """Draft a tree of a fixed shape, and note how much of the committed state each of its rows read."""

    needs = frozenset({"state:decay"})

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.target = target

    def observe(self, state: State, outcome: Outcome) -> None:
        shares = self.target.survival()[:len(outcome.tree) + 1]
        state.note("survival", share=[round(share, 4) for share in shares], state_bytes=self.target.state_bytes,
                   replayed=len(outcome.kept))
