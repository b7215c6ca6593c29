"""When to stop drafting, by a network that was trained for it (models/draft_length.py). As in stopping.py, a token that was looked at
stays."""
from __future__ import annotations

import math
from typing import Callable

import torch
from torch import Tensor

from ..core import Budget, Policy, State, Step, to_device


class PredictedAcceptance(Policy):
    """SpecDec++ (Huang et al. 2405.19715): stop when the predicted chance that something was refused is above the threshold.

    head: a state [hidden] of the draft model -> chance that the token it read last is accepted. The state that comes with a token has
    read the one before it, so the newest token is not judged yet. least, most: bounds of a draft.
    """

    def __init__(self, head: Callable[[Tensor], Tensor], threshold: float = 0.3, least: int = 2, most: int = 20):
        self.head, self.threshold, self.least, self.most = head, threshold, least, max(least, most)

    def plan(self, state: State) -> Budget:
        self.line: list[float] = []
        self.refused: list[float] = []
        state.note("predicted", line=self.line, limit=self.threshold, refused=self.refused)  # both grow while tokens are drafted
        return Budget(self.most, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        if step.depth == 0:  # its state has read a token of the text
            return False
        with torch.inference_mode():
            self.line.append(float(self.head(step.hidden)))
        good = 1 - self.refused[-1] if self.refused else 1.0
        self.refused.append(1 - good * self.line[-1])
        return step.depth + 1 >= self.least and self.refused[-1] > self.threshold


class Classified(Policy):
    """DISCO (Mamou et al. 2405.04304): stop after a token to which the classifier gives a chance below the threshold.

    classifier: (the draft's distribution [vocab], the token's place []) -> its chance.
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
    """AdaEAGLE (Zhang et al. 2412.18910): as many tokens as are predicted to pass, before any is drafted; none is a length, too.

    predict(state) -> their number, None where nothing is known to tell it by: then ``most``. sure: with it the draft goes on beyond the
    prediction while its tokens' log-probability is not below. least: of a draft.
    """

    def __init__(self, predict: Callable[[State], float | None], most: int, sure: float | None = None, least: int = 0):
        self.predict, self.most, self.sure, self.least = predict, max(least, most), sure, least

    def plan(self, state: State) -> Budget:
        told = self.predict(state)
        self.wanted = self.most if told is None else min(self.most, max(self.least, round(told)))
        state.note("length", gamma=self.wanted, **({} if told is None else {"predicted": round(told, 3)}))
        return Budget(self.wanted) if self.sure is None else Budget(self.most, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        return step.depth + 1 >= self.wanted and math.log(max(float(step.probs[step.token]), 1e-30)) < self.sure
