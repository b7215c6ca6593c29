"""Search for the sublayers to skip: random search with periodic Bayesian steps (SWIFT, Xia et al.
2410.06916)."""

from __future__ import annotations

import random

import numpy as np

EVERY = 25  # trials between Bayesian steps
CANDIDATES = 64  # sets of layers that a Bayesian step compares
KAPPA = 2.5  # exploration weight
SEEN = 64  # trials kept


class LayerSearch:
    """Search for the set of sublayers to skip whose drafts agree most with the target: random sets, and a
    Bayesian step every EVERY trials (SWIFT, Xia et al. 2410.06916).

    choices: the sublayers that may be skipped; ratio: share of them that a set holds; rng: random numbers
    of the search; enough, patience, max_trials: the search ends once the agreement is above ``enough``,
    after ``patience`` trials without improvement, or after ``max_trials`` trials. best: the best set so
    far; matched: its agreement with the target in [0, 1], 0 before the first trial.
    """

    def __init__(
        self,
        choices: tuple[int, ...],
        ratio: float,
        rng: random.Random,
        *,
        enough=0.95,
        patience=300,
        max_trials=1000,
    ):
        self.choices, self.rng = choices, rng
        self.size = int(len(choices) * ratio)
        self.enough = enough
        self.patience = patience
        self.max_trials = max_trials
        # start with both sublayers of every other layer
        odd_first = sorted(choices, key=lambda s: (s // 2 % 2 == 0, s))
        self.best: frozenset[int] = frozenset(odd_first[: self.size])
        self.matched = 0.0
        self.trials = 0
        self.trials_since_best = 0
        self._tried: list[tuple[frozenset[int], float]] = []

    @property
    def finished(self) -> bool:
        """Whether the search has ended."""
        full = self.size in (0, len(self.choices))  # only one such set exists
        return (
            full
            and self.trials > 0
            or self.matched > self.enough
            or self.trials_since_best >= self.patience
            or self.trials >= self.max_trials
        )

    def propose(self) -> frozenset[int]:
        """Return the next set of sublayers to try. The first trial is the initial set, every other layer."""
        if not self.trials:
            return self.best
        if self.trials % EVERY or len(self._tried) < 2:
            return self._draw()
        return self._promising([self._draw() for _ in range(CANDIDATES)])

    def learn(self, trial: frozenset[int], matched: float) -> bool:
        """Record the agreement with the target of a tried set, in [0, 1]; return whether it is the new best
        set."""
        self.trials += 1
        self._tried = [*self._tried, (trial, matched)][-SEEN:]
        better = matched > self.matched
        self.trials_since_best = 0 if better else self.trials_since_best + 1
        if better:
            self.best, self.matched = trial, matched
        return better

    def _draw(self) -> frozenset[int]:
        return frozenset(self.rng.sample(self.choices, self.size))

    def _promising(self, candidates: list[frozenset[int]]) -> frozenset[int]:
        """Return the candidate with the highest upper confidence bound of a Gaussian process over recent
        trials."""
        seen = self._bits([trial for trial, _ in self._tried])
        score = np.array([matched for _, matched in self._tried])
        new = self._bits(candidates)
        mean, spread = score.mean(), score.std() + 1e-6
        inner = _kernel(seen, seen) + 1e-3 * np.eye(len(seen))
        across = _kernel(new, seen)
        solved = np.linalg.solve(inner, across.T)  # [seen, candidates]
        value = across @ np.linalg.solve(inner, (score - mean) / spread)
        doubt = np.sqrt(np.clip(1 - (across * solved.T).sum(1), 1e-9, None))
        return candidates[int(np.argmax(value + KAPPA * doubt))]

    def _bits(self, sets) -> np.ndarray:
        return np.array([[s in chosen for s in self.choices] for chosen in sets], dtype=float)


def _kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the RBF kernel of 0/1 rows over their normalised Hamming distance."""
    differ = ((a[:, None] - b[None]) ** 2).mean(-1)
    return np.exp(-differ / 0.25)
