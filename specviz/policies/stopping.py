"""Stop drafting by the confidence of each drafted token. The token that was examined is kept, because
dropping it would bias the output.

Confidence: transformers' assisted generation, whose rule descends from DISCO (Mamou et al. 2405.04304).
Entropy: SVIP (Zhang et al. 2411.18462).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

import torch

from ..core import Budget, Outcome, Policy, State, Step, StopBelowProbability

MEMORY = 256  # most recent drafted tokens used to fit the threshold


@dataclass(frozen=True)
class RecordingStop(StopBelowProbability):
    """A stop rule that ends a draft after a token with a draft probability below ``min_prob``. ``sure``:
    the draft probabilities of the tokens drafted in this round."""

    sure: list[float] = field(default_factory=list)

    def stops_after(self, prob: float) -> bool:
        self.sure.append(prob)
        return super().stops_after(prob)


class Confidence(Policy):
    """A policy that stops drafting after a token whose draft probability is below ``threshold``
    (transformers' dynamic draft length).

    max_gamma: maximum draft length; learn: after each round, refit the threshold that best separates
    accepted from rejected tokens; as in transformers, a false negative weighs three times as much as a
    false positive.
    """

    def __init__(self, max_gamma: int = 20, threshold: float = 0.4, learn: bool = True):
        self.max_gamma = max_gamma
        self.threshold = threshold
        self.learn = learn
        self.seen: list[tuple[float, bool]] = []  # probability, accepted

    def plan(self, state: State) -> Budget:
        self.stop = RecordingStop(self.threshold)
        state.note("threshold", value=self.threshold)
        return Budget(self.max_gamma, stop=self.stop)

    def observe(self, outcome: Outcome) -> None:
        accepted = len(outcome.verdict.path)
        self.seen += [(sure, i < accepted) for i, sure in enumerate(self.stop.sure[: accepted + 1])]
        self.seen = self.seen[-MEMORY:]
        if self.learn and len(self.seen) > 5 and len({ok for _, ok in self.seen}) == 2:
            self.threshold = best_threshold(self.seen)


def best_threshold(seen: list[tuple[float, bool]]) -> float:
    """Return the threshold t for the prediction "accepted iff probability >= t" that minimises false
    positive rate + 3 x false negative rate; of several the largest. seen: (draft probability, accepted) of
    examined tokens."""
    good = sorted(sure for sure, ok in seen if ok)
    bad = sorted(sure for sure, ok in seen if not ok)

    def cost(t: float) -> float:
        return (len(bad) - bisect_left(bad, t)) / len(bad) + 3 * bisect_left(good, t) / len(good)

    return min(sorted({sure for sure, _ in seen}, reverse=True), key=cost)


class Entropy(Policy):
    """A policy that stops drafting after a token whose draft distribution has sqrt(scale * entropy) above
    ``limit``, with the entropy in nats (SVIP, Zhang et al. 2411.18462). max_gamma: maximum draft length."""

    def __init__(self, max_gamma: int = 40, limit: float = 0.3, scale: float = 0.15):
        self.max_gamma = max_gamma
        self.limit = limit
        self.scale = scale
        self.line: list[float] = []

    def plan(self, state: State) -> Budget:
        self.line = []
        state.note("entropy", line=self.line, limit=self.limit)  # the list grows while tokens are drafted
        return Budget(self.max_gamma, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        entropy = -float(torch.special.xlogy(step.probs, step.probs).sum())
        self.line.append(math.sqrt(self.scale * max(0.0, entropy)))
        return self.line[-1] > self.limit


class Heuristic(Policy):
    """A policy that drafts ``up`` tokens more after a fully accepted draft and ``down`` fewer after any
    other (transformers' heuristic schedule).

    first: initial draft length; max_gamma: maximum draft length; 0: unbounded, as in transformers.
    """

    def __init__(self, first: int = 5, up: int = 2, down: int = 1, max_gamma: int = 40):
        self.gamma = first
        self.up = up
        self.down = down
        self.max_gamma = max_gamma

    def plan(self, state: State) -> Budget:
        state.note("length", gamma=self.gamma)
        return Budget(self.gamma)

    def observe(self, outcome: Outcome) -> None:
        if len(outcome.tree) and len(outcome.verdict.path) == len(outcome.tree):
            self.gamma = min(self.max_gamma or self.gamma + self.up, self.gamma + self.up)
        else:
            self.gamma = max(1, self.gamma - self.down)
