"""The budget of a round, and functions that end drafting early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that the catalogue of methods can be read without torch
    from torch import Tensor


@dataclass(frozen=True)
class Step:
    """One draft step, as seen by a rule that decides whether drafting stops: the token just added, the
    draft distribution [vocab] that it came from, its depth in the draft (0 for the first draft token), and
    the draft model's hidden state [hidden] there, if it has one."""

    token: int
    probs: Tensor
    depth: int
    hidden: Tensor | None = None


def never_stop(step: Step) -> bool:
    """Return False: draft to the full depth of the budget. The default of ``Budget.stop``."""
    return False


@dataclass(frozen=True)
class StopBelowProbability:
    """A rule for ``Budget.stop``: stop after a draft token whose draft probability is below the threshold
    ``min_prob``. A model that drafts a whole chain in one call applies the same threshold inside that
    call."""

    min_prob: float

    def __call__(self, step: Step) -> bool:
        return self.stops_after(float(step.probs[step.token]))

    def stops_after(self, prob: float) -> bool:
        """Return whether drafting stops after a token with this probability. Called once for each token, in
        order."""
        return prob < self.min_prob


@dataclass(frozen=True)
class Budget:
    """The size of a round's draft.

    gamma: maximum depth in tokens; width: maximum number of children per node (1: a chain); nodes: maximum
    number of nodes; candidate: index of the option that a bandit policy chose; stop: called after each
    draft token, ends drafting when it returns True. The token that made it stop stays in the draft, because
    dropping it would bias the output.
    """

    gamma: int = 4
    width: int = 1
    nodes: int = 64
    candidate: int = 0
    stop: Callable[[Step], bool] = never_stop
