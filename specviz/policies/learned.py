"""Stop drafting when a trained network says so (models/draft_length.py). As in stopping.py, the token that was examined
is kept."""
from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..core import Budget, Policy, State, Step, to_device


class PredictedAcceptance(Policy):
    """SpecDec++ (Huang et al. 2405.19715): stop when the predicted probability of a rejection exceeds the threshold.

    head: hidden state [hidden] of the draft model -> probability that the last token it processed is accepted. A
    token's prediction is available one step later, because the hidden state of a step belongs to the token before.
    least, most: bounds of the draft length.
    """

    def __init__(self, head: Callable[[Tensor], Tensor], threshold: float = 0.3, least: int = 2, most: int = 20):
        self.head, self.threshold, self.least, self.most = head, threshold, least, max(least, most)

    def plan(self, state: State) -> Budget:
        self.line: list[float] = []
        self.refused: list[float] = []
        state.note("predicted", line=self.line, limit=self.threshold, refused=self.refused)  # both lists grow while tokens are drafted
        return Budget(self.most, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        if step.depth == 0:  # the hidden state belongs to a committed token
            return False
        assert step.hidden is not None  # a drafter with such a head gives it
        with torch.inference_mode():
            self.line.append(float(self.head(step.hidden)))
        good = 1 - self.refused[-1] if self.refused else 1.0
        self.refused.append(1 - good * self.line[-1])
        return step.depth + 1 >= self.least and self.refused[-1] > self.threshold


class Classified(Policy):
    """DISCO (Mamou et al. 2405.04304): stop after a token whose predicted acceptance probability is below the threshold.

    classifier: (draft distribution [vocab], position in the draft []) -> acceptance probability.
    """

    def __init__(self, classifier: Callable[[Tensor, Tensor], Tensor], threshold: float = 0.5, most: int = 20):
        self.classifier, self.threshold, self.most = classifier, threshold, most

    def plan(self, state: State) -> Budget:
        self.line: list[float] = []
        state.note("predicted", line=self.line, limit=self.threshold)
        return Budget(self.most, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        with torch.inference_mode():
            self.line.append(float(self.classifier(step.probs, to_device(torch.tensor(step.depth), step.probs.device))))
        return self.line[-1] < self.threshold


class PredictedLength(Policy):
    """AdaEAGLE (Zhang et al. 2412.18910): predict the number of accepted tokens before drafting; 0 is possible.

    predict(state) -> expected number; None if unknown, then ``most`` is used. sure: if given, drafting continues beyond
    the prediction while the log-probability of the path stays above it. least: minimum draft length.
    """

    def __init__(self, predict: Callable[[State], float | None], most: int, sure: float | None = None, least: int = 0):
        self.predict, self.most, self.sure, self.least = predict, max(least, most), sure, least

    def plan(self, state: State) -> Budget:
        predicted = self.predict(state)
        self.wanted = self.most if predicted is None else min(self.most, max(self.least, round(predicted)))
        state.note("length", gamma=self.wanted, **({} if predicted is None else {"predicted": round(predicted, 3)}))
        return Budget(self.wanted) if self.sure is None else Budget(self.most, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        assert self.sure is not None  # plan() names this rule only then
        return step.depth + 1 >= self.wanted and math.log(max(float(step.probs[step.token]), 1e-30)) < self.sure
