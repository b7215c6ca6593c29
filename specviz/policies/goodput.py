"""SmartSpec (Liu et al. 2406.14066): the draft length with the most goodput, that is tokens a second that end up written.

A length k brings each of B requests (1 - a^(k+1)) / (1 - a) tokens, where a is the share of tried tokens accepted lately, and
costs one pass of B (k + 1) rows and B k draft steps. What these take is measured: a pass by a line over rows and context tokens,
a draft step by its mean. With many requests rows grow dear, drafts shrink, and at length 0 speculation is off.
"""
from __future__ import annotations

from collections import deque
from typing import Sequence

import torch

from ..core import Budget, DraftTree, JointPolicy, Outcome, State
from .cost import MEMORY, PRIOR, tokens
from .rows import note_rows

WINDOW = 64  # passes that the line is laid through
OPENING = (1, 0, 1)  # of the first rounds, with drafts and without: a line needs two places
ASLEEP = 32  # rounds without drafts after which one is tried, as acceptance and costs may have changed; this is ours


class PassCost:
    """Seconds of a pass: base + row * rows + context * context tokens, by least squares, no coefficient below 0."""

    def __init__(self):
        self.seen: deque[tuple[float, float, float, float]] = deque(maxlen=WINDOW)
        self.line = [0.0, 0.0, 0.0]

    def learn(self, rows: int, context: int, seconds: float) -> None:
        self.seen.append((1.0, float(rows), float(context), seconds))
        data = torch.tensor(list(self.seen), dtype=torch.float64)
        self.line, kept = [0.0] * 3, [0, 1, 2]
        while kept:
            found = _least_squares(data[:, kept], data[:, 3])
            if min(found) >= 0 or len(kept) == 1:
                break
            kept.pop(min(range(len(kept)), key=found.__getitem__))
        for at, value in zip(kept, found):
            self.line[at] = max(0.0, value)

    def seconds(self, rows: int, context: int) -> float:
        return self.line[0] + self.line[1] * rows + self.line[2] * context


def _least_squares(x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """Coefficients of the columns; a little ridge decides where columns say the same."""
    scale = x.abs().amax(0)
    x = x / scale
    square = x.T @ x + 1e-6 * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    return (torch.linalg.solve(square, x.T @ y) / scale).tolist()


class Goodput(JointPolicy):
    """first: length of the opening rounds, while nothing is measured; most: longest draft considered."""

    def __init__(self, first: int = 4, most: int = 8):
        self.first, self.most, self.gamma = first, most, first
        self.passes, self.step = PassCost(), 0.0
        self.good, self.tried, self.rounds, self.asleep = 0.7 * PRIOR, PRIOR, 0, 0
        self.speeds: list[float] = []

    @property
    def acceptance(self) -> float:
        return min(self.good / self.tried, 0.999)

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        if self.rounds < len(OPENING):
            self.gamma = self.first * OPENING[self.rounds]
        else:
            context = sum(len(state.tokens) for state in states)
            self.speeds = [self.goodput(len(states), k, context) for k in range(self.most + 1)]
            self.gamma = max(range(self.most + 1), key=self.speeds.__getitem__)
            self.gamma = self.gamma or int(self.asleep >= ASLEEP)
        return [Budget(self.gamma)] * len(states)

    def goodput(self, requests: int, k: int, context: int) -> float:
        """Tokens a second that so many requests would write with drafts of length k."""
        seconds = self.passes.seconds(requests * (k + 1), context) + requests * k * self.step
        return requests * tokens(self.acceptance, k) / max(seconds, 1e-9)

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        why = "nothing is measured yet" if not self.speeds else f"length {self.gamma} promises most tokens a second"
        note_rows(states, trees, trees, [why] * len(states), gamma=self.gamma, acceptance=self.acceptance,
                  speeds=[round(speed, 3) for speed in self.speeds])
        return trees

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        self.rounds += 1
        rows = sum(len(outcome.tree) + 1 for outcome in outcomes)
        steps = sum(max(outcome.tree.depths, default=0) for outcome in outcomes)
        seconds = states[0].costs.charged(rows - 1, steps, outcomes[0].seconds)
        if self.rounds > 1:  # the first round's times include what is only done once
            self.passes.learn(rows, sum(len(state.tokens) for state in states), seconds["verify"])
            if steps:
                each = seconds["draft"] / steps
                self.step = each if not self.step else self.step + 0.2 * (each - self.step)
        self.asleep = 0 if steps else self.asleep + 1
        if steps:
            accepted = sum(len(outcome.verdict.path) for outcome in outcomes)
            refused = sum(len(outcome.verdict.path) < len(outcome.tree) for outcome in outcomes)
            self.good, self.tried = self.good * MEMORY + accepted, self.tried * MEMORY + accepted + refused
