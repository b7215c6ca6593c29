"""Predict the acceptance of draft tokens from what is known before they are drawn: vLLM's adaptive
verification (pull request 52228, documentation of 0.32).

A draft token at place k is accepted, given that the places before it were, with probability sigmoid(w f +
b_k). f is the log-odds of the draft's most probable token, w a slope shared by all places, b_k an intercept
of each place. Copied tokens have no draft distribution; they are counted by source, length of the match and
place. Neither looks at the drawn token: a choice by the drawn token would bias the output towards tokens
that the draft finds probable.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

SLOPE = 0.5  # initial w
INTERCEPT = -0.2  # initial b_k
CLAMP = 40.0  # largest absolute value of f
RIDGE = 1e-3
DAMPING = 50  # labels at which a step is half of Newton's
MATCHES = (0, 1, 2, 3, 5, 8, 12, 20)  # classes of the length of a match
COPIED = (0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # initial acceptance of each class
TRUST = 4.0  # weight of the initial acceptance, in tokens
FADE = 0.99  # decay of older labels of a count


def log_odds(prob: float) -> float:
    """Return the feature f of a place whose most probable draft token has probability ``prob``."""
    if prob >= 1.0:
        return CLAMP
    return max(-CLAMP, min(CLAMP, math.log(max(prob, 1e-300)) - math.log1p(-prob)))


@dataclass
class _Place:
    """Sums over the labelled tokens of one place since the last step: v f, v, r, and their number."""

    vf: float = 0.0
    v: float = 0.0
    r: float = 0.0
    count: int = 0


@dataclass
class AcceptanceModel:
    """The logistic model of acceptance, refitted while decoding: one damped Newton step after every
    ``every`` rounds, from sums over the rounds since the last step."""

    every: int = 100
    slope: float = SLOPE
    intercepts: list[float] = field(default_factory=list[float])
    rounds: int = 0
    _vff: float = 0.0
    _rf: float = 0.0
    _places: list[_Place] = field(default_factory=list[_Place])

    def prob(self, feature: float, place: int) -> float:
        """Return the predicted acceptance of a token at ``place`` (the first is 0), given that all places
        before it are accepted. feature: ``log_odds`` there."""
        intercept = self.intercepts[place] if place < len(self.intercepts) else INTERCEPT
        x = max(-CLAMP, min(CLAMP, self.slope * feature + intercept))
        return 1.0 / (1.0 + math.exp(-x))

    def learn(self, feature: float, place: int, accepted: bool) -> None:
        """Add a label: the token at ``place`` was tested and accepted, or rejected."""
        while len(self._places) <= place:
            self._places.append(_Place())
            self.intercepts.append(INTERCEPT)
        s = self.prob(feature, place)
        v, r, sums = s * (1 - s), accepted - s, self._places[place]
        self._vff += v * feature * feature
        self._rf += r * feature
        sums.vf += v * feature
        sums.v += v
        sums.r += r
        sums.count += 1

    def end_round(self) -> None:
        """Count a round, and take a step if it is time."""
        self.rounds += 1
        if self.rounds % self.every == 0:
            self.step()

    def step(self) -> None:
        """Take one damped Newton step for the slope and all intercepts, and begin new sums. A slope below 0
        is not taken."""
        total = sum(sums.count for sums in self._places)
        if not total:
            return
        weight = [sums.v + RIDGE for sums in self._places]
        top = self._rf - sum(sums.vf * sums.r / c for sums, c in zip(self._places, weight))
        below = self._vff + RIDGE - sum(sums.vf**2 / c for sums, c in zip(self._places, weight))
        change = top / below * total / (total + DAMPING)
        change = change if self.slope + change >= 0 else 0.0
        self.slope += change
        for place, (sums, c) in enumerate(zip(self._places, weight)):
            self.intercepts[place] += (sums.r - sums.vf * change) / c * sums.count / (sums.count + DAMPING)
        self._vff = self._rf = 0.0
        self._places = [_Place() for _ in self._places]


Match = tuple[str, int]  # source of a copy and length of its match, in tokens


class MatchRates:
    """Acceptance of copied tokens, counted by source, length of the match and place."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, int], tuple[float, float]] = {}  # accepted, tested

    def prob(self, match: Match, place: int) -> float:
        """Return the predicted acceptance of the token at ``place`` of a copy after this match, given that
        all places before it are accepted."""
        key = self._key(match, place)
        start = COPIED[bisect_right(MATCHES, match[1] + place) - 1]
        good, tried = self._counts.get(key, (0.0, 0.0))
        return (good + start * TRUST) / (tried + TRUST)

    def learn(self, match: Match, place: int, accepted: bool) -> None:
        """Add a label: the token at ``place`` was tested and accepted, or rejected."""
        key = self._key(match, place)
        good, tried = self._counts.get(key, (0.0, 0.0))
        self._counts[key] = (good * FADE + accepted, tried * FADE + 1)

    @staticmethod
    def _key(match: Match, place: int) -> tuple[str, int, int]:
        return match[0], bisect_right(MATCHES, match[1]) - 1, place
