"""BanditSpec: which draft length pays is learned while decoding, as a bandit's arm (Hou et al. 2505.15141).

The arm is chosen before the round, from earlier rounds alone, so the output stays exact. A round's reward is its tokens a
second, as a share of the best seen.
"""
from __future__ import annotations

import math
from typing import Sequence

import torch

from ..core import Budget, Outcome, Policy, State


class Bandit(Policy):
    """gammas: the arms. What a rule adds is ``choose`` and ``learn``."""

    def __init__(self, gammas: Sequence[int]):
        self.gammas = tuple(gammas)
        self.pulls, self.means, self.top = [0] * len(self.gammas), [0.0] * len(self.gammas), 0.0

    def plan(self, state: State) -> Budget:
        arm = self.choose(state)
        state.note("arms", arm=arm, gammas=list(self.gammas), pulls=list(self.pulls), means=list(self.means))
        return Budget(self.gammas[arm], arm=arm)

    def observe(self, outcome: Outcome) -> None:
        arm, seconds = outcome.budget.arm, max(sum(outcome.seconds.values()), 1e-9)
        speed = len(outcome.committed) / seconds
        self.top = max(self.top, speed)
        reward = speed / self.top
        self.pulls[arm] += 1
        self.means[arm] += (reward - self.means[arm]) / self.pulls[arm]
        self.learn(arm, reward)

    def choose(self, state: State) -> int:
        raise TypeError(f"{type(self).__name__} does not say how to choose")

    def learn(self, arm: int, reward: float) -> None:
        """Take in the reward, in [0, 1], of the arm pulled last."""


class Ucb(Bandit):
    """UCBSpec: every arm twice, then the one with the greatest mean + sqrt(explore * ln t / pulls)."""

    def __init__(self, gammas: Sequence[int], explore: float = 0.05):
        super().__init__(gammas)
        self.explore = explore

    def choose(self, state: State) -> int:
        fresh = min(range(len(self.gammas)), key=lambda arm: self.pulls[arm])
        if self.pulls[fresh] < 2:
            return fresh
        total = math.log(sum(self.pulls))
        return max(range(len(self.gammas)), key=lambda arm: self.means[arm] + math.sqrt(self.explore * total / self.pulls[arm]))


class Exp3(Bandit):
    """EXP3Spec: arms are drawn with weights exp(-eta * estimated loss), which holds even where the best arm keeps changing."""

    def __init__(self, gammas: Sequence[int]):
        super().__init__(gammas)
        self.losses = [0.0] * len(self.gammas)
        self.chances = [1 / len(self.gammas)] * len(self.gammas)

    def choose(self, state: State) -> int:
        arms, pulled = len(self.gammas), sum(self.pulls) + 1
        eta = math.sqrt(math.log(arms) / (arms * pulled)) if arms > 1 else 0.0
        least = min(self.losses)
        weights = [math.exp(-eta * (loss - least)) for loss in self.losses]
        self.chances = [weight / sum(weights) for weight in weights]
        return state.dice.pick("policy", torch.tensor(self.chances, dtype=torch.float64))

    def learn(self, arm: int, reward: float) -> None:
        self.losses[arm] += (1 - reward) / self.chances[arm]
