"""The budget of a round, and functions that end drafting early."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that the catalogue of methods can be read without torch
    from torch import Tensor


@dataclass(frozen=True)
class Step:
    """One draft step, as seen by a policy that decides when to stop: the token just added, its distribution [vocab],
    and its depth (0 first)."""

    token: int
    probs: Tensor
    depth: int
    hidden: Tensor | None = None


def never_stop(step: Step) -> bool:
    """Draft to the budget's full depth."""
    return False


@dataclass(frozen=True)
class StopBelowProbability:
    """Stop after a token whose draft probability is below ``least``. A model that drafts a whole chain in one call
    applies the rule inside that call."""

    least: float

    def __call__(self, step: Step) -> bool:
        return self.takes(float(step.probs[step.token]))

    def takes(self, prob: float) -> bool:
        """Return whether drafting stops after a token with this probability. Called once for each token, in order."""
        return prob < self.least


@dataclass(frozen=True)
class Budget:
    """The size of a round's draft. gamma: maximum depth; width: children per node; nodes: maximum number of nodes;
    candidate: index of a bandit's choice; stop: called after each token, ends the draft. The token that made it stop is
    kept, because dropping it would bias the output."""

    gamma: int = 4
    width: int = 1
    nodes: int = 64
    candidate: int = 0
    stop: Callable[[Step], bool] = never_stop
