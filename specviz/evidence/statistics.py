"""Counts against the law they should follow: a chi-square test over continuations of a prompt, the rate at which the first draft
token is accepted, and tests of uniformity."""
from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import torch
from torch import Tensor

Tokens = tuple[int, ...]
LEAST = 5.0  # expected count of a cell; what is rarer is pooled
FEW, CELLS, SIDE = 40, 16, 4  # values below which nothing is tested; cells of a chi-square; side of the table of neighbours


def chi_square(expected: dict[Any, float], counts: Counter, samples: int) -> tuple[float, int]:
    """(statistic, degrees of freedom) of counts against expected probabilities; an infinite statistic where a count falls on a
    cell of probability 0. Cells too rare to count belong pooled before."""
    freedom = len(expected) - 1
    if any(cell not in expected or expected[cell] <= 0 for cell in counts):
        return math.inf, freedom
    return sum((counts[cell] - samples * p) ** 2 / (samples * p) for cell, p in expected.items()), freedom


def as_normal(statistic: float, freedom: int) -> float:
    """A chi-square statistic as a standard normal (Wilson and Hilferty)."""
    spread = 2 / (9 * max(1, freedom))
    return ((statistic / max(1, freedom)) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def p_value(statistic: float, freedom: int) -> float:
    """Chance of a chi-square statistic at least as large; with one cell there is nothing to compare, and it is 1."""
    if freedom < 1 and math.isfinite(statistic):
        return 1.0
    tail = float(torch.special.gammaincc(*(torch.tensor(x / 2, dtype=torch.float64) for x in (freedom, statistic))))
    return tail if math.isfinite(tail) and math.isfinite(statistic) else 0.0


def uniformity(values: Sequence[float], serial: bool = False) -> list[float]:
    """p-values of values that should be uniform on [0, 1]: Kolmogorov and Smirnov's, a chi-square over even cells, and with
    ``serial`` (the values are in order and should be independent) one over the table of neighbours; none for too few values."""
    if len(values) < FEW:
        return []
    x = torch.tensor(values, dtype=torch.float64)
    count = len(x)
    cells = (x * CELLS).long().clamp(0, CELLS - 1)
    even = count / CELLS
    found = [kolmogorov(x), p_value(float(((cells.bincount(minlength=CELLS) - even) ** 2 / even).sum()), CELLS - 1)]
    if serial and count // 2 >= LEAST * SIDE**2:
        pairs = (x[:count // 2 * 2].view(-1, 2) * SIDE).long().clamp(0, SIDE - 1)
        even = len(pairs) / SIDE**2
        table = (pairs[:, 0] * SIDE + pairs[:, 1]).bincount(minlength=SIDE**2)
        found.append(p_value(float(((table - even) ** 2 / even).sum()), SIDE**2 - 1))
    return found


def kolmogorov(x: Tensor) -> float:
    """p-value of the greatest distance between the empirical distribution of x [n] and the uniform one (Stephens 1970)."""
    x, count = x.sort().values, len(x)
    steps = torch.arange(count + 1, dtype=x.dtype) / count
    distance = float(torch.maximum(steps[1:] - x, x - steps[:-1]).max())
    t = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance
    return min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * t * t) for k in range(1, 101)))) if t > 0.2 else 1.0


@dataclass
class Cells:
    """Continuations as cells: ``expected`` probability of each. A prefix with None behind it is all of it that is rare; POOL
    holds what is too rare even so. ``inner``: prefixes that were split further; ``pooled``: one that the pool took whole."""

    expected: dict[Any, float] = field(default_factory=dict)
    inner: set[Tokens] = field(default_factory=set)
    pooled: Any = None

    POOL = "pool"

    @classmethod
    def of(cls, probs: Callable[[Tokens], Tensor], samples: int, depth: int, stop=frozenset()) -> Cells:
        """Cells for ``samples`` runs of ``depth`` tokens; law(tokens so far) -> [vocab]."""
        cells = cls()
        pool = cells._split(probs, samples, stop, depth, (), 1.0)
        if pool * samples >= LEAST:
            cells.expected[cls.POOL] = pool
        elif pool > 1e-12:  # too rare for a cell of its own: the rarest cell takes it
            cells.pooled = min(cells.expected, key=cells.expected.get)
            cells.expected[cls.POOL] = cells.expected.pop(cells.pooled) + pool
        return cells

    def _split(self, probs, samples, stop, depth, prefix: Tokens, mass: float) -> float:
        """Fill the cells below a prefix; returns the probability that found no cell."""
        if len(prefix) == depth or (prefix and prefix[-1] in stop) or (prefix and mass * samples < 2 * LEAST):
            self.expected[prefix] = mass
            return 0.0
        self.inner.add(prefix)
        odds = probs(prefix).double() * mass
        likely = (odds * samples >= LEAST).nonzero()[:, 0].tolist()
        pool = sum(self._split(probs, samples, stop, depth, (*prefix, token), float(odds[token])) for token in likely)
        rest = float(odds.sum() - odds[likely].sum())
        if rest * samples < LEAST:
            return pool + max(rest, 0.0)
        self.expected[(*prefix, None)] = rest
        return pool

    def find(self, tokens: Tokens) -> Any:
        """The cell of a run's tokens."""
        for i in range(len(tokens) + 1):
            if tokens[:i] in self.expected:
                return tokens[:i]
            if tokens[:i] == self.pooled:
                return self.POOL
            if tokens[:i] not in self.inner:
                rest = (*tokens[:i - 1], None)
                return rest if rest in self.expected else self.POOL
        return self.POOL


@dataclass
class Acceptance:
    """How often the first draft token was accepted, against sum(min(p, q)); only where it was drawn from the draft's law q."""

    target: Tensor
    draft: Tensor | None
    tried: int = 0
    accepted: int = 0

    def add(self, trial: dict[str, Any] | None) -> None:
        """Count a trial of the round's first node; one that was not drawn from q ends the comparison."""
        if self.draft is None or trial is None:
            return
        if trial["rule"] != "ratio" or not math.isclose(trial["q"], float(self.draft[trial["tok"]]), rel_tol=1e-2, abs_tol=1e-4):
            self.draft = None
            return
        self.tried += 1
        self.accepted += trial["verdict"] == "accepted"

    @property
    def overlap(self) -> float:
        return float(torch.minimum(self.target.double(), self.draft.double()).sum())

    @property
    def z(self) -> float:
        if self.draft is None or not self.tried:
            return 0.0
        spread = math.sqrt(max(self.overlap * (1 - self.overlap), 1e-9) / self.tried)
        return (self.accepted / self.tried - self.overlap) / spread

    def __str__(self) -> str:
        if self.draft is None or not self.tried:
            return ""
        return f" First draft token accepted {self.accepted / self.tried:.1%}, in closed form {self.overlap:.1%}: z = {self.z:+.1f}."
