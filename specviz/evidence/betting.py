"""Sequential tests by betting: p-values that stay valid for dependent observations and any stopping time.

A likelihood ratio of an alternative to the null hypothesis has expectation 1 under the null, whatever came
before. The product of such ratios is a test martingale, and its value exceeds 1 / a with probability at
most a (Ville 1939; Shafer 2021). Each ratio is mixed with 1, so that a single impossible observation under
the alternative does not end the test: half and half, and one part in ten for mistakes that are made seldom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

STAKE = 0.5  # share of the wealth that is bet on an alternative that holds often
RARE = 0.1  # share of the wealth that is bet on an alternative that holds seldom
SPLIT = ": "  # after the stretch to which an alternative is limited
FLOOR = 1e-4  # smallest null probability used in a ratio; raising it only weakens the test
DRAWS = 400  # resamples of the power


@dataclass
class TestMartingale:
    """A sequential test of one null hypothesis. alternative: the main alternative in words; wealth:
    {alternative hypothesis: log wealth}; gains: for each observation, the log gain that it would bring if
    the main alternative were true, from which the power is estimated."""

    __test__ = False  # not a test case of pytest

    alternative: str
    wealth: dict[str, float] = field(default_factory=dict)
    gains: list[float] = field(default_factory=list)

    def bet(
        self,
        ratios: dict[str, float],
        if_true: float,
        full_stake: dict[str, float] | None = None,
        full_stake_if_true: bool = False,
    ) -> None:
        """Add an observation.

        ratios: likelihood ratio for each alternative; full_stake: ratios that are never 0, on which all of
        the wealth is bet; if_true: the ratio that an observation from the main alternative would have;
        full_stake_if_true: whether the main alternative is one of ``full_stake``."""
        rare = {f"rarely {name}": ratio for name, ratio in ratios.items()}
        stakes = [(ratios, STAKE), (rare, RARE), (full_stake or {}, 1.0)]
        for name, ratio, stake in (
            (name, ratio, stake) for some, stake in stakes for name, ratio in some.items()
        ):
            self.wealth[name] = self.wealth.get(name, 0.0) + log_gain(ratio, stake)
        self.gains.append(log_gain(if_true, 1.0 if full_stake_if_true else STAKE))

    def merge(self, other: TestMartingale) -> None:
        """Add the observations of another test of the same hypothesis: its wealth multiplies this one's."""
        for name, value in other.wealth.items():
            self.wealth[name] = self.wealth.get(name, 0.0) + value
        self.gains += other.gains

    @property
    def p(self) -> float | None:
        """The p-value: one over the mean wealth; None without observations. Alternatives that are limited
        to a stretch (``SPLIT`` in their names) share one half of the weight, so that they do not dilute the
        others."""
        if not self.wealth:
            return None
        limited = [value for name, value in self.wealth.items() if SPLIT in name]
        halves = [
            part
            for part in (limited, [value for name, value in self.wealth.items() if SPLIT not in name])
            if part
        ]
        top = max(self.wealth.values())
        mean = top + math.log(
            sum(math.exp(value - top) / len(part) for part in halves for value in part) / len(halves)
        )
        return min(1.0, math.exp(-mean)) if mean > -700 else 1.0

    def power(self, level: float, seed: int = 0) -> float | None:
        """Return the probability that the test would have rejected at this level if the main alternative
        were true, by resampling the observations."""
        if not self.gains:
            return None
        unlimited = [name for name in self.wealth if SPLIT not in name]
        needed = math.log(max(1, len(unlimited) * (2 if len(unlimited) < len(self.wealth) else 1)) / level)
        gains, rng = np.array(self.gains), np.random.default_rng(seed)
        return sum(float(rng.choice(gains, len(gains)).sum()) >= needed for _ in range(DRAWS)) / DRAWS


def log_gain(ratio: float, stake: float = STAKE) -> float:
    """Return the log of the factor by which the wealth changes if the share ``stake`` of it is bet on a
    likelihood ratio."""
    return math.log(1 - stake + stake * ratio)
