"""Switch between two models by the entropy of recent positions (entropy-adaptive decoding, Simonds
2502.06833)."""

from __future__ import annotations

from collections import deque

import torch

from ..core import Budget, Outcome, Policy, State


class EntropySwitch(Policy):
    """A policy that generates each token with one of two models: the large one while the mean entropy of
    the last ``window`` distributions is above ``limit`` nats, else the small one (Simonds 2502.06833).

    Each distribution is that of the model that generated the token. The run starts with the large model.
    After a switch the model does not change for ``dwell`` tokens. ``writer``: "small" or "large", the model
    that generates the next token.
    """

    def __init__(self, window: int = 5, limit: float = 1.5, dwell: int = 5):
        self.limit, self.dwell = limit, dwell
        self.entropies: deque[float] = deque(maxlen=window)
        self.writer, self.stayed = "large", 0

    def plan(self, state: State) -> Budget:
        return Budget(0)

    @property
    def mean(self) -> float:
        """Mean entropy over the window, in nats."""
        return sum(self.entropies) / len(self.entropies)

    def entropy_values(self) -> dict[str, float]:
        """Return the values shown in the panel, in nats: entropy of the last distribution, mean over the
        window, limit."""
        return {"entropy": round(self.entropies[-1], 5), "mean": round(self.mean, 5), "limit": self.limit}

    def observe(self, outcome: Outcome) -> None:
        probs = outcome.scores.logits[outcome.kept[-1]].float().softmax(-1)
        self.entropies.append(-float(torch.special.xlogy(probs, probs).sum()))
        self.stayed += 1
        wanted = "large" if self.mean > self.limit else "small"
        if wanted != self.writer and self.stayed >= self.dwell:
            self.writer, self.stayed = wanted, 0
