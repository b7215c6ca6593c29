"""Goodness-of-fit tests: chi-square over continuations of a prompt, the acceptance rate of the first draft
token, and uniformity."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Tokens = tuple[int, ...]
LEAST = 5.0  # smallest expected count of a cell; rarer ones are pooled
FEW = 40  # minimum values per test
CELLS = 16  # cells of the chi-square test
SIDE = 4  # side of the table of neighbours
ACCEPTANCE = (
    " First draft token accepted: {measured:.1%}, expected sum min(p, q): {expected:.1%}; z = {z:+.1f}."
)


def chi_square(expected: dict[Any, float], counts: Counter, samples: int) -> tuple[float, int]:
    """Return (statistic, degrees of freedom) of counts against expected probabilities; infinite if an
    outcome of probability 0 was counted. Rare outcomes must be pooled before."""
    degrees_of_freedom = len(expected) - 1
    if any(cell not in expected or expected[cell] <= 0 for cell in counts):
        return math.inf, degrees_of_freedom
    return sum(
        (counts[cell] - samples * p) ** 2 / (samples * p) for cell, p in expected.items()
    ), degrees_of_freedom


def normal_score(statistic: float, degrees_of_freedom: int) -> float:
    """Convert a chi-square statistic to a standard normal score (Wilson and Hilferty)."""
    spread = 2 / (9 * max(1, degrees_of_freedom))
    return ((statistic / max(1, degrees_of_freedom)) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def p_value(statistic: float, degrees_of_freedom: int) -> float:
    """Return the probability of a chi-square statistic at least as large. 1 for a single cell."""
    if degrees_of_freedom < 1 and math.isfinite(statistic):
        return 1.0
    tail = float(
        torch.special.gammaincc(
            *(torch.tensor(x / 2, dtype=torch.float64) for x in (degrees_of_freedom, statistic))
        )
    )
    return tail if math.isfinite(tail) and math.isfinite(statistic) else 0.0


def uniformity_p_values(values: Sequence[float], serial: bool = False) -> list[float]:
    """Return p-values for uniformity on [0, 1]: Kolmogorov-Smirnov, and chi-square over equal cells.
    serial: the values are in order and independent; then also chi-square over pairs of neighbours. Empty
    for too few values."""
    if len(values) < FEW:
        return []
    x = torch.tensor(values, dtype=torch.float64)
    count = len(x)
    cells = (x * CELLS).long().clamp(0, CELLS - 1)
    even = count / CELLS
    found = [
        kolmogorov_smirnov_p(x),
        p_value(float(((cells.bincount(minlength=CELLS) - even) ** 2 / even).sum()), CELLS - 1),
    ]
    if serial and count // 2 >= LEAST * SIDE**2:
        pairs = (x[: count // 2 * 2].view(-1, 2) * SIDE).long().clamp(0, SIDE - 1)
        even = len(pairs) / SIDE**2
        table = (pairs[:, 0] * SIDE + pairs[:, 1]).bincount(minlength=SIDE**2)
        found.append(p_value(float(((table - even) ** 2 / even).sum()), SIDE**2 - 1))
    return found


def kolmogorov_smirnov_p(x: Tensor) -> float:
    """Return the Kolmogorov-Smirnov p-value of x [n] against the uniform distribution (Stephens 1970)."""
    x, count = x.sort().values, len(x)
    steps = torch.arange(count + 1, dtype=x.dtype) / count
    distance = float(torch.maximum(steps[1:] - x, x - steps[:-1]).max())
    t = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance
    return (
        min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * t * t) for k in range(1, 101))))
        if t > 0.2
        else 1.0
    )


@dataclass
class Cells:
    """The cells of a chi-square test: continuations of a prompt, with their ``expected`` probabilities. A
    prefix followed by None pools its rare continuations; POOL holds what is still too rare. ``inner``:
    prefixes that were split; ``pooled``: a cell that was merged into the pool."""

    expected: dict[Any, float] = field(default_factory=dict)
    inner: set[Tokens] = field(default_factory=set)
    pooled: Any = None

    POOL = "pool"

    @classmethod
    def build(cls, probs: Callable[[Tokens], Tensor], samples: int, depth: int, stop=frozenset()) -> Cells:
        """Return cells for ``samples`` runs of ``depth`` tokens. probs(tokens so far): the next-token
        distribution [vocab]; stop: end tokens."""
        cells = cls()
        pool = cells._split(probs, samples, stop, depth, (), 1.0)
        if pool * samples >= LEAST:
            cells.expected[cls.POOL] = pool
        elif pool > 1e-12:  # too rare for its own cell: merge with the rarest cell
            cells.pooled = min(cells.expected, key=cells.expected.__getitem__)
            cells.expected[cls.POOL] = cells.expected.pop(cells.pooled) + pool
        return cells

    def _split(self, probs, samples, stop, depth, prefix: Tokens, mass: float) -> float:
        """Add the cells below a prefix; return the probability without a cell."""
        if len(prefix) == depth or (prefix and prefix[-1] in stop) or (prefix and mass * samples < 2 * LEAST):
            self.expected[prefix] = mass
            return 0.0
        self.inner.add(prefix)
        odds = probs(prefix).double() * mass
        likely = (odds * samples >= LEAST).nonzero()[:, 0].tolist()
        pool = sum(
            self._split(probs, samples, stop, depth, (*prefix, token), float(odds[token])) for token in likely
        )
        rest = float(odds.sum() - odds[likely].sum())
        if rest * samples < LEAST:
            return pool + max(rest, 0.0)
        self.expected[(*prefix, None)] = rest
        return pool

    def find(self, tokens: Tokens) -> Any:
        """Return the cell to which a run's tokens belong."""
        for i in range(len(tokens) + 1):
            if tokens[:i] in self.expected:
                return tokens[:i]
            if tokens[:i] == self.pooled:
                return self.POOL
            if tokens[:i] not in self.inner:
                rest = (*tokens[: i - 1], None)
                return rest if rest in self.expected else self.POOL
        return self.POOL


@dataclass
class Acceptance:
    """The acceptance rate of the first draft token, compared with sum(min(p, q)). Valid only if the token
    was sampled from the draft distribution q. target, draft [vocab]: p and q."""

    target: Tensor
    draft: Tensor | None
    tried: int = 0
    accepted: int = 0

    def add(self, trial: dict[str, Any] | None) -> None:
        """Count the decision about the first draft node. A node that was not sampled from q disables the
        test."""
        if self.draft is None or trial is None:
            return
        if trial["rule"] != "ratio" or not math.isclose(
            trial["q"], float(self.draft[trial["tok"]]), rel_tol=1e-2, abs_tol=1e-4
        ):
            self.draft = None
            return
        self.tried += 1
        self.accepted += trial["verdict"] == "accepted"

    @property
    def overlap(self) -> float:
        """The expected acceptance rate, sum(min(p, q))."""
        assert self.draft is not None  # called for a valid test only
        return float(torch.minimum(self.target.double(), self.draft.double()).sum())

    @property
    def z(self) -> float:
        """The deviation of the acceptance rate from its expectation, in standard deviations; 0 without a
        valid test."""
        if self.draft is None or not self.tried:
            return 0.0
        spread = math.sqrt(max(self.overlap * (1 - self.overlap), 1e-9) / self.tried)
        return (self.accepted / self.tried - self.overlap) / spread

    def __str__(self) -> str:
        if self.draft is None or not self.tried:
            return ""
        return ACCEPTANCE.format(measured=self.accepted / self.tried, expected=self.overlap, z=self.z)
