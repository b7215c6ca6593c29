"""Counts against the law they should follow: a chi-square test over continuations of a prompt, and the rate at which the first
draft token is accepted. Figures are given as standard normals, so that one limit serves all."""
from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch import Tensor

Tokens = tuple[int, ...]
LEAST = 5.0  # expected count of a cell; what is rarer is pooled


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
    """Chance of a chi-square statistic at least as large."""
    tail = float(torch.special.gammaincc(*(torch.tensor(x / 2, dtype=torch.float64) for x in (freedom, statistic))))
    return tail if math.isfinite(tail) and math.isfinite(statistic) else 0.0


@dataclass
class Cells:
    """Continuations as cells: ``expected`` probability of each. A prefix with None behind it is all of it that is rare; POOL
    holds what is too rare even so. ``inner``: prefixes that were split further; ``pooled``: one that the pool took whole."""

    expected: dict[Any, float] = field(default_factory=dict)
    inner: set[Tokens] = field(default_factory=set)
    pooled: Any = None

    POOL = "pool"

    @classmethod
    def of(cls, law: Callable[[Tokens], Tensor], samples: int, depth: int, stop=frozenset()) -> Cells:
        """Cells for ``samples`` runs of ``depth`` tokens; law(tokens so far) -> [vocab]."""
        cells = cls()
        pool = cells._split(law, samples, stop, depth, (), 1.0)
        if pool * samples >= LEAST:
            cells.expected[cls.POOL] = pool
        elif pool > 1e-12:  # too rare for a cell of its own: the rarest cell takes it
            cells.pooled = min(cells.expected, key=cells.expected.get)
            cells.expected[cls.POOL] = cells.expected.pop(cells.pooled) + pool
        return cells

    def _split(self, law, samples, stop, depth, prefix: Tokens, mass: float) -> float:
        """Fill the cells below a prefix; returns the probability that found no cell."""
        if len(prefix) == depth or (prefix and prefix[-1] in stop) or (prefix and mass * samples < 2 * LEAST):
            self.expected[prefix] = mass
            return 0.0
        self.inner.add(prefix)
        odds = law(prefix).double() * mass
        likely = (odds * samples >= LEAST).nonzero()[:, 0].tolist()
        pool = sum(self._split(law, samples, stop, depth, (*prefix, token), float(odds[token])) for token in likely)
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
