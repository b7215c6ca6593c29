"""Every outcome of a verification rule with its probability, and a sequential test of a submission against them.

The rule's random numbers are scripted, so that its outcomes on one round (distributions and a draft) are enumerated.
The test bets (evidence/betting.py) for every known mistake, and for what the submission itself did so far on the same
round, so that it also finds mistakes that nobody has thought of. It is valid at any number of calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..evidence.betting import RARE, STAKE, log_gain

Outcome = tuple[tuple[int, ...], int]  # accepted nodes, and the token after them
Outcomes = dict[Outcome, float]
CHANCE = 1e-4  # probability that a right submission fails
NOTHING = 1e-13  # outcomes less probable than this are rounding
FLOOR = 1e-4  # smallest probability in a ratio
CALLS = 2500  # calls of a passing check
READ_ON = 250  # calls after a rejection, so that the mistake is recognised
PRIOR = 20.0  # observations that the right rule counts for in the prediction of a submission's own outcomes


class ScriptedRng:
    """Random numbers that follow a plan; prob: probability of what was replayed. Same methods as a submission's
    generator, and those of an engine's random streams."""

    def __init__(self, plan: list[int]):
        self.plan = plan
        self.sizes: list[int] = []
        self.prob = 1.0

    def flip(self, *args: Any) -> Any:
        """flip(probability) -> bool of a submission, or flip(stream, probability) -> (bool, None) of the engine."""
        accept = min(1.0, max(0.0, float(args[-1])))
        hit = self._take([(ok, p) for ok, p in ((True, accept), (False, 1 - accept)) if p > NOTHING])
        return hit if len(args) == 1 else (hit, None)

    def pick(self, *args: Any) -> int:
        """pick(probs) of a submission, or pick(stream, probs) of the engine."""
        return self._take([(i, float(p)) for i, p in enumerate(args[-1]) if float(p) > NOTHING])

    def _take(self, options: list[tuple[Any, float]]) -> Any:
        at = len(self.sizes)
        if at == len(self.plan):
            self.plan.append(0)
        self.sizes.append(len(options))
        outcome, prob = options[self.plan[at]]
        self.prob *= prob
        return outcome


def outcomes_of(run: Callable[[ScriptedRng], Outcome]) -> Outcomes:
    """Return all outcomes of a rule with their probabilities. run(rng): one call of it."""
    found: Outcomes = {}
    plan: list[int] = []
    while True:
        rng = ScriptedRng(plan)
        outcome = run(rng)
        found[outcome] = found.get(outcome, 0.0) + rng.prob
        plan = rng.plan[: len(rng.sizes)]
        while plan and plan[-1] + 1 == rng.sizes[len(plan) - 1]:
            plan.pop()
        if not plan:
            return found
        plan[-1] += 1


@dataclass
class OutcomeTest:
    """A test of outcomes against the right rule. right: outcomes of each round; known: the same of each mistake.

    impossible: the first (round, outcome) of probability 0; calls, tokens: so far; caught_at: tokens when the submission
    was rejected."""

    right: Sequence[Outcomes]
    known: Mapping[str, Sequence[Outcomes]]
    impossible: tuple[int, Outcome] | None = None
    calls: int = 0
    tokens: int = 0
    caught_at: int | None = None

    def __post_init__(self) -> None:
        self.names = list(self.known)
        self._wealth = np.zeros(
            2 * len(self.names) + 1
        )  # of each mistake as a frequent and as a rare one, and of what the submission itself did
        self._likelihood = np.zeros(len(self.names))
        self._fits = np.zeros(
            len(self.names)
        )  # wealth of the submission's own frequencies against each mistake
        self._gains: dict[tuple[int, Outcome], tuple[Any, Any]] = {}
        self._counts: dict[int, Counter[Outcome]] = {}

    def add(self, index: int, outcome: Outcome) -> None:
        """Add the outcome of a call on a round."""
        null = self.right[index].get(outcome, 0.0)
        if null <= NOTHING and self.impossible is None:
            self.impossible = index, outcome
        seen = self._counts.setdefault(index, Counter())
        total = sum(seen.values())
        gains, probs = self._of(index, outcome)
        self._wealth[:-1] += gains
        self._wealth[-1] += math.log(_predicted(seen[outcome], max(null, FLOOR), total) / max(null, FLOOR))
        self._likelihood += np.log(probs)
        self._fits += np.log(_predicted(seen[outcome], probs, total) / probs)
        seen[outcome] += 1
        self.calls += 1
        self.tokens += len(outcome[0]) + 1
        if self.caught_at is None and self.rejected:
            self.caught_at = self.tokens

    def _of(self, index: int, outcome: Outcome) -> tuple[Any, Any]:
        """Return what a bet on each mistake gains, and the outcome's probability under each."""
        if (index, outcome) not in self._gains:
            null = max(self.right[index].get(outcome, 0.0), FLOOR)
            probs = np.array([self.known[name][index].get(outcome, 0.0) for name in self.names])
            gains = [log_gain(prob / null, stake) for stake in (STAKE, RARE) for prob in probs]
            self._gains[index, outcome] = np.array(gains), np.maximum(probs, FLOOR)
        return self._gains[index, outcome]

    @property
    def p(self) -> float:
        """The p-value, one over the mean wealth; 0 after an outcome of probability 0."""
        if self.impossible:
            return 0.0
        top = self._wealth.max()
        mean = top + math.log(np.exp(self._wealth - top).mean())
        return min(1.0, math.exp(-min(700.0, mean)))

    @property
    def rejected(self) -> bool:
        """Whether the submission follows another rule."""
        return self.p < CHANCE

    def behaves_like(self) -> str | None:
        """Return the key of the known mistake that explains the outcomes best, None if none of them does."""
        likely = np.where(self._fits < -math.log(CHANCE), self._likelihood, -np.inf)
        return self.names[int(likely.argmax())] if len(likely) and np.isfinite(likely).any() else None


def _predicted(count: Any, prob: Any, total: int) -> Any:
    """Return the predicted probability of an outcome that a submission had ``count`` of ``total`` times on a round, and
    that has probability ``prob`` under a rule."""
    return (count + PRIOR * prob) / (total + PRIOR)


def run_test(
    test: OutcomeTest, call: Callable[[int, int], Outcome], order: Iterator[int], calls: int = CALLS
) -> None:
    """Call a submission until the test is decided. call(round, number of the call): one call; order: the rounds."""
    after = 0
    for number in range(calls):
        index = next(order)
        test.add(index, call(index, number))
        after += test.rejected
        if after >= READ_ON:
            return
