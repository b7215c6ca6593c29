"""BanditSpec: which way to draft pays is learned while decoding; each is an arm of a bandit (Hou et al. 2505.15141).

The arm is chosen before the round, from earlier rounds alone, so the output stays exact. What a round earns is its tokens a second,
as a share of the best round seen, or its tokens alone, which is what the paper's theory counts.
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Sequence

import torch

from ..core import Budget, Outcome, Policy, State

SPEED, TOKENS = "speed", "tokens"


class Bandit(Policy):
    """arms: the budgets to choose from; names: of the arms, for people; reward: "speed" or "tokens". What a rule adds is ``choose``
    and ``learn``.

    A reward lies in [0, 1]: the round's speed by the best one seen, or (tokens - 1) / L with L the longest arm's draft.
    """

    def __init__(self, arms: Sequence[Budget], names: Sequence[str] = (), reward: str = SPEED):
        self.arms = tuple(replace(arm, arm=i) for i, arm in enumerate(arms))
        self.names, self.gammas, self.reward = tuple(names), tuple(arm.gamma for arm in self.arms), reward
        self.pulls, self.speeds, self.top = [0] * len(self.arms), [0.0] * len(self.arms), 0.0

    @property
    def means(self) -> list[float]:
        """Mean reward of each arm. Speeds are kept and not rewards, so that a faster round changes what earlier ones were worth."""
        return [self._worth(speed) for speed in self.speeds]

    def _worth(self, earned: float) -> float:
        if self.reward == TOKENS:
            return max(0.0, min(1.0, (earned - 1) / max(1, *self.gammas)))
        return earned / self.top if self.top else 0.0

    def plan(self, state: State) -> Budget:
        arm = self.choose(state)
        told = {"names": list(self.names)} if self.names else {}
        state.note("arms", arm=arm, gammas=list(self.gammas), pulls=list(self.pulls), means=self.means, **told)
        return self.arms[arm]

    def observe(self, outcome: Outcome) -> None:
        arm, seconds = outcome.budget.arm, max(sum(outcome.seconds.values()), 1e-9)
        earned = len(outcome.committed) / (1.0 if self.reward == TOKENS else seconds)
        self.top = max(self.top, earned)
        self.pulls[arm] += 1
        self.speeds[arm] += (earned - self.speeds[arm]) / self.pulls[arm]
        self.learn(arm, self._worth(earned))

    def choose(self, state: State) -> int:
        raise TypeError(f"{type(self).__name__} does not say how to choose")

    def learn(self, arm: int, reward: float) -> None:
        """Take in the reward, in [0, 1], of the arm pulled last."""


class Ucb(Bandit):
    """UCBSpec: every arm ``tries`` times, then the one with the greatest mean + allowance.

    radius: "narrow", sqrt(explore * ln t / pulls) on rewards in [0, 1]; "paper", the published one, with confidence ``delta`` and one
    pull of each arm first; "code", the authors' program: sqrt(6 ln t / pulls) on tokens a second as they are.
    """

    def __init__(self, arms: Sequence[Budget], names: Sequence[str] = (), reward: str = SPEED, radius: str = "narrow",
                 explore: float = 0.05, delta: float = 0.1):
        super().__init__(arms, names, reward)
        self.radius, self.explore, self.delta = RADII[radius], explore, delta
        self.tries, self.scaled = 1 if radius == "paper" else 2, radius != "code"

    def choose(self, state: State) -> int:
        fresh = min(range(len(self.arms)), key=lambda arm: self.pulls[arm])
        if self.pulls[fresh] < self.tries:
            return fresh
        worth = self.means if self.scaled else self.speeds
        return max(range(len(self.arms)), key=lambda arm: worth[arm] + self.radius(self, self.pulls[arm]))

    def narrow(self, pulls: int) -> float:
        return math.sqrt(self.explore * math.log(sum(self.pulls)) / pulls)

    def published(self, pulls: int) -> float:
        """Half the width of the rewards times the radius of a self-normalised bound, at round t of K arms."""
        t, arms = sum(self.pulls) + 1, len(self.arms)
        return math.sqrt((1 + pulls) / pulls**2 * (1 + 2 * math.log(arms * t**2 * math.sqrt(1 + pulls) / self.delta))) / 2

    def programmed(self, pulls: int) -> float:
        return math.sqrt(6 * math.log(sum(self.pulls)) / pulls)


RADII = {"narrow": Ucb.narrow, "paper": Ucb.published, "code": Ucb.programmed}


class Exp3(Bandit):
    """EXP3Spec: arms are drawn with weights exp(-eta * estimated loss), which holds even where the best arm keeps changing."""

    def __init__(self, arms: Sequence[Budget], names: Sequence[str] = (), reward: str = SPEED):
        super().__init__(arms, names, reward)
        self.losses = [0.0] * len(self.arms)
        self.token_probs = [1 / len(self.arms)] * len(self.arms)

    def choose(self, state: State) -> int:
        arms, pulled = len(self.arms), sum(self.pulls) + 1
        eta = math.sqrt(math.log(arms) / (arms * pulled)) if arms > 1 else 0.0
        least = min(self.losses)
        weights = [math.exp(-eta * (loss - least)) for loss in self.losses]
        self.token_probs = [weight / sum(weights) for weight in weights]
        return state.rng.pick("policy", torch.tensor(self.token_probs, dtype=torch.float64))

    def learn(self, arm: int, reward: float) -> None:
        self.losses[arm] += (1 - reward) / self.token_probs[arm]
