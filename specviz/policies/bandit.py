"""Choose the drafting configuration with a multi-armed bandit: BanditSpec (Hou et al. 2505.15141).

The candidate is chosen before the round, from earlier rounds only, so the output stays exact. The reward of
a round is its tokens per second, relative to the best round so far, or its number of tokens, which is what
the paper's theory uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from ..core import Budget, Outcome, Policy, State

SPEED = "speed"  # reward: tokens per second
TOKENS = "tokens"  # reward: tokens per round


class Bandit(Policy):
    """Base class of policies that choose the budget with a multi-armed bandit. A subclass implements
    ``choose``, and ``learn`` if it needs the rewards.

    candidates: the budgets to choose from, the bandit's arms; names: their display names; reward: "speed"
    (tokens per second relative to the best round so far) or "tokens" ((tokens - 1) / L, with L the longest
    draft of any candidate). Rewards are in [0, 1].
    """

    def __init__(self, candidates: Sequence[Budget], names: Sequence[str] = (), reward: str = SPEED):
        self.candidates = tuple(replace(budget, candidate=i) for i, budget in enumerate(candidates))
        self.names, self.gammas, self.reward = (
            tuple(names),
            tuple(budget.gamma for budget in self.candidates),
            reward,
        )
        self.pulls, self.mean_earned, self.best_earned = (
            [0] * len(self.candidates),
            [0.0] * len(self.candidates),
            0.0,
        )

    @property
    def means(self) -> list[float]:
        """Mean reward of each candidate, in [0, 1]. ``mean_earned`` holds tokens per second (or per round)
        instead, because a faster round rescales all earlier rewards."""
        return [self._worth(earned) for earned in self.mean_earned]

    def _worth(self, earned: float) -> float:
        if self.reward == TOKENS:
            return max(0.0, min(1.0, (earned - 1) / max(1, *self.gammas)))
        return earned / self.best_earned if self.best_earned else 0.0

    def plan(self, state: State) -> Budget:
        arm = self.choose(state)
        names = {"names": list(self.names)} if self.names else {}
        state.note(
            "arms", arm=arm, gammas=list(self.gammas), pulls=list(self.pulls), means=self.means, **names
        )
        return self.candidates[arm]

    def observe(self, outcome: Outcome) -> None:
        arm, seconds = outcome.budget.candidate, max(sum(outcome.seconds.values()), 1e-9)
        earned = len(outcome.committed) / (1.0 if self.reward == TOKENS else seconds)
        self.best_earned = max(self.best_earned, earned)
        self.pulls[arm] += 1
        self.mean_earned[arm] += (earned - self.mean_earned[arm]) / self.pulls[arm]
        self.learn(arm, self._worth(earned))

    def choose(self, state: State) -> int:
        """Return the index of the candidate for the next round."""
        raise TypeError(f"{type(self).__name__} does not implement choose()")

    def learn(self, arm: int, reward: float) -> None:
        """Update the rule. arm: index of the candidate used last; reward: its reward in [0, 1]."""


class Ucb(Bandit):
    """UCBSpec (BanditSpec, Hou et al. 2505.15141): use every candidate twice (once with the paper's
    radius), then always the one with the largest upper confidence bound, mean reward + radius.

    radius: "narrow": sqrt(explore * ln t / pulls) on rewards in [0, 1]; "paper": the published radius with
    confidence ``delta``; "code": as in the authors' program, sqrt(6 ln t / pulls) on raw tokens per second.
    """

    def __init__(
        self,
        candidates: Sequence[Budget],
        names: Sequence[str] = (),
        reward: str = SPEED,
        radius: str = "narrow",
        explore: float = 0.05,
        delta: float = 0.1,
    ):
        super().__init__(candidates, names, reward)
        self.radius = RADII[radius]
        self.explore = explore
        self.delta = delta
        self.tries, self.scaled = 1 if radius == "paper" else 2, radius != "code"

    def choose(self, state: State) -> int:
        rarest = min(range(len(self.candidates)), key=lambda arm: self.pulls[arm])
        if self.pulls[rarest] < self.tries:
            return rarest
        worth = self.means if self.scaled else self.mean_earned
        return max(
            range(len(self.candidates)), key=lambda arm: worth[arm] + self.radius(self, self.pulls[arm])
        )

    def narrow_radius(self, pulls: int) -> float:
        """Return sqrt(explore * ln t / pulls), with t the rounds so far."""
        return math.sqrt(self.explore * math.log(sum(self.pulls)) / pulls)

    def paper_radius(self, pulls: int) -> float:
        """Return the paper's radius: the self-normalised bound at round t with K candidates, times 1/2
        because rewards lie in [0, 1]."""
        t, candidates = sum(self.pulls) + 1, len(self.candidates)
        return (
            math.sqrt(
                (1 + pulls)
                / pulls**2
                * (1 + 2 * math.log(candidates * t**2 * math.sqrt(1 + pulls) / self.delta))
            )
            / 2
        )

    def authors_code_radius(self, pulls: int) -> float:
        """Return sqrt(6 ln t / pulls), as in the authors' program, with t the rounds so far."""
        return math.sqrt(6 * math.log(sum(self.pulls)) / pulls)


RADII = {"narrow": Ucb.narrow_radius, "paper": Ucb.paper_radius, "code": Ucb.authors_code_radius}


class Exp3(Bandit):
    """EXP3Spec (BanditSpec, 2505.15141): sample a candidate with weights exp(-eta * estimated loss). Its
    regret bound holds for adversarial rewards, too. ``candidate_probs``: the probabilities of the last
    choice."""

    def __init__(self, candidates: Sequence[Budget], names: Sequence[str] = (), reward: str = SPEED):
        super().__init__(candidates, names, reward)
        self.losses = [0.0] * len(self.candidates)
        self.candidate_probs = [1 / len(self.candidates)] * len(self.candidates)

    def choose(self, state: State) -> int:
        candidates, pulled = len(self.candidates), sum(self.pulls) + 1
        eta = math.sqrt(math.log(candidates) / (candidates * pulled)) if candidates > 1 else 0.0
        least = min(self.losses)
        weights = [math.exp(-eta * (loss - least)) for loss in self.losses]
        self.candidate_probs = [weight / sum(weights) for weight in weights]
        return state.rng.pick("policy", torch.tensor(self.candidate_probs, dtype=torch.float64))

    def learn(self, arm: int, reward: float) -> None:
        self.losses[arm] += (1 - reward) / self.candidate_probs[arm]
