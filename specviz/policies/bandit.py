"""BanditSpec: which way to draft pays is learned while decoding; each is an arm of a bandit (Hou et al. 2505.15141).

The arm is chosen before the round, from earlier rounds alone, so the output stays exact. A round's reward is its tokens a
second, as a share of the best round seen.
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Sequence

import torch

from ..core import Budget, Outcome, Policy, State


class Bandit(Policy):
    """arms: the budgets to choose from; names: of the arms, for people. What a rule adds is ``choose`` and ``learn``."""

    def __init__(self, arms: Sequence[Budget], names: Sequence[str] = ()):
        self.arms = tuple(replace(arm, arm=i) for i, arm in enumerate(arms))
        self.names, self.gammas = tuple(names), tuple(arm.gamma for arm in self.arms)
        self.pulls, self.speeds, self.top = [0] * len(self.arms), [0.0] * len(self.arms), 0.0

    @property
    def means(self) -> list[float]:
        """Mean reward of each arm. Speeds are kept and not rewards, so that a faster round changes what earlier ones were worth."""
        return [speed / self.top if self.top else 0.0 for speed in self.speeds]

    def plan(self, state: State) -> Budget:
        arm = self.choose(state)
        told = {"names": list(self.names)} if self.names else {}
        state.note("arms", arm=arm, gammas=list(self.gammas), pulls=list(self.pulls), means=self.means, **told)
        return self.arms[arm]

    def observe(self, outcome: Outcome) -> None:
        arm, seconds = outcome.budget.arm, max(sum(outcome.seconds.values()), 1e-9)
        speed = len(outcome.committed) / seconds
        self.top = max(self.top, speed)
        self.pulls[arm] += 1
        self.speeds[arm] += (speed - self.speeds[arm]) / self.pulls[arm]
        self.learn(arm, speed / self.top)

    def choose(self, state: State) -> int:
        raise TypeError(f"{type(self).__name__} does not say how to choose")

    def learn(self, arm: int, reward: float) -> None:
        """Take in the reward, in [0, 1], of the arm pulled last."""


class Ucb(Bandit):
    """UCBSpec: every arm twice, then the one with the greatest mean + sqrt(explore * ln t / pulls).

    The published code takes 6 for ``explore`` with rewards in tokens a second; these lie in [0, 1], where 6 would try arms evenly.
    """

    def __init__(self, arms: Sequence[Budget], names: Sequence[str] = (), explore: float = 0.05):
        super().__init__(arms, names)
        self.explore = explore

    def choose(self, state: State) -> int:
        fresh = min(range(len(self.arms)), key=lambda arm: self.pulls[arm])
        if self.pulls[fresh] < 2:
            return fresh
        total, means = math.log(sum(self.pulls)), self.means
        return max(range(len(self.arms)), key=lambda arm: means[arm] + math.sqrt(self.explore * total / self.pulls[arm]))


class Exp3(Bandit):
    """EXP3Spec: arms are drawn with weights exp(-eta * estimated loss), which holds even where the best arm keeps changing."""

    def __init__(self, arms: Sequence[Budget], names: Sequence[str] = ()):
        super().__init__(arms, names)
        self.losses = [0.0] * len(self.arms)
        self.chances = [1 / len(self.arms)] * len(self.arms)

    def choose(self, state: State) -> int:
        arms, pulled = len(self.arms), sum(self.pulls) + 1
        eta = math.sqrt(math.log(arms) / (arms * pulled)) if arms > 1 else 0.0
        least = min(self.losses)
        weights = [math.exp(-eta * (loss - least)) for loss in self.losses]
        self.chances = [weight / sum(weights) for weight in weights]
        return state.dice.pick("policy", torch.tensor(self.chances, dtype=torch.float64))

    def learn(self, arm: int, reward: float) -> None:
        self.losses[arm] += (1 - reward) / self.chances[arm]
