"""Which of two models writes the next token, by how unsure the last places were (entropy-adaptive decoding, Simonds 2502.06833)."""
from __future__ import annotations

from collections import deque

import torch

from ..core import Budget, Outcome, Policy, State


class EntropySwitch(Policy):
    """The large model writes while the mean entropy of the last ``window`` laws is above ``limit`` nats, the small one below.

    The laws are those of whichever model wrote. After a change neither is relieved for ``dwell`` tokens. It begins with the large
    model. ``writer``: "small" or "large", who writes the next token.
    """

    def __init__(self, window: int = 5, limit: float = 1.5, dwell: int = 5):
        self.limit, self.dwell = limit, dwell
        self.seen: deque[float] = deque(maxlen=window)
        self.writer, self.stayed = "large", 0

    def plan(self, state: State) -> Budget:
        return Budget(0)

    @property
    def mean(self) -> float:
        """Mean entropy over the window, in nats."""
        return sum(self.seen) / len(self.seen)

    def told(self) -> dict[str, float]:
        """For the lens: the last law's entropy, the mean that decides, and the limit, in nats."""
        return {"entropy": round(self.seen[-1], 5), "mean": round(self.mean, 5), "limit": self.limit}

    def observe(self, outcome: Outcome) -> None:
        probs = outcome.scores.logits[outcome.kept[-1]].float().softmax(-1)
        self.seen.append(-float(torch.special.xlogy(probs, probs).sum()))
        self.stayed += 1
        wanted = "large" if self.mean > self.limit else "small"
        if wanted != self.writer and self.stayed >= self.dwell:
            self.writer, self.stayed = wanted, 0
