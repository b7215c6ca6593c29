"""Draft trees for a target whose layers carry states (STree: Wu et al., 2505.14969)."""

from __future__ import annotations

from ...core import CapableTarget, Outcome, Scores, State
from .chain import DraftShape


class StateTree(DraftShape):
    """Drafter of a tree of a fixed shape for a target whose layers carry recurrent states (STree, Wu et al.
    2505.14969). After each round the note "survival" tells what share of the committed state remains at the
    root and at each node."""

    needs = frozenset({"state:decay"})

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.target = target

    def observe(self, state: State, outcome: Outcome) -> None:
        shares = self.target.survival()[: len(outcome.tree) + 1]
        state.note(
            "survival",
            share=[round(share, 4) for share in shares],
            state_bytes=self.target.state_bytes,
            replayed=len(outcome.kept),
        )
