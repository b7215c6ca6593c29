"""Draft with layers that run in parallel (EasySpec, Wu et al. 2502.02493)."""

from __future__ import annotations

from collections.abc import Callable

from ...core import Budget, CapableTarget, Drafter, DraftTree, Scores, State


class LayerParallel(Drafter):
    """Drafter that runs a draft model with its middle layers in parallel, in groups of ``size`` layers that
    read the same input (EasySpec, Wu et al. 2502.02493). grow(model): builds the drafter that uses this
    view of the model.

    The KV cache of the committed text is exact: at the start of each round it is recomputed layer by layer,
    which also gives the distribution of the first draft token."""

    def __init__(self, model: CapableTarget, size: int, grow: Callable[[CapableTarget], Drafter]):
        self.model, self.size = model.layer_parallel(size), size
        self.inner = grow(self.model)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = self.inner.propose(state, budget)
        middle = max(0, self.model.layers - 2)
        if len(tree):
            state.note(
                "side_by_side",
                layers=self.model.layers,
                size=self.size,
                groups=-(-middle // self.size),
                exact=1,
                steps=2 + -(-middle // self.size) if middle else self.model.layers,
            )
        return tree
