"""Oracle drafts: the target drafts for itself while the timer is paused, so every draft token is accepted
and drafting costs nothing.

The speed of such a run is an upper bound for every drafter with the same draft length on this machine: only
verification and sampling take time.
"""

from __future__ import annotations

from ...core import Budget, Drafter, DraftingModel, DraftTree, Scores, State, Target
from .chain import DraftChain


class OracleChain(Drafter):
    """Drafter of a chain sampled from the target itself, with a second KV cache (``model``), while the
    engine's timer is paused. So every draft token is accepted, and drafting costs no measured time."""

    def __init__(self, model: DraftingModel):
        self.inner = DraftChain(model)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        state.clock.pause()
        try:
            self.inner.start(state, target, prefill)
        finally:
            state.clock.resume()

    def propose(self, state: State, budget: Budget) -> DraftTree:
        state.clock.pause()
        try:
            return self.inner.propose(state, budget)
        finally:
            state.clock.resume()
