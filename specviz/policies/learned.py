"""Stop drafting when a trained network says so (models/draft_length.py). As in stopping.py, the token that
was examined is kept."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..core import Budget, Policy, State, Step, to_device


class PredictedAcceptance(Policy):
    """SpecDec++ (Huang et al. 2405.19715): stop drafting when the predicted probability that some drafted
    token is rejected exceeds ``threshold``.

    head: hidden state [hidden] of the draft model -> probability that the token that the draft model has
    just processed is accepted. So the prediction for a token is available one draft step later. min_gamma,
    max_gamma: bounds of the draft length.
    """

    def __init__(
        self,
        head: Callable[[Tensor], Tensor],
        threshold: float = 0.3,
        min_gamma: int = 2,
        max_gamma: int = 20,
    ):
        self.head = head
        self.threshold = threshold
        self.min_gamma = min_gamma
        self.max_gamma = max(min_gamma, max_gamma)

    def plan(self, state: State) -> Budget:
        self.line: list[float] = []
        self.refused: list[float] = []
        state.note(
            "predicted", line=self.line, limit=self.threshold, refused=self.refused
        )  # both lists grow while tokens are drafted
        return Budget(self.max_gamma, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        if step.depth == 0:  # the hidden state belongs to a committed token
            return False
        assert step.hidden is not None  # a drafter with such a head gives it
        with torch.inference_mode():
            self.line.append(float(self.head(step.hidden)))
        good = 1 - self.refused[-1] if self.refused else 1.0
        self.refused.append(1 - good * self.line[-1])
        return step.depth + 1 >= self.min_gamma and self.refused[-1] > self.threshold


class Classified(Policy):
    """DISCO (Mamou et al. 2405.04304): stop drafting after a token whose predicted acceptance probability
    is below ``threshold``.

    classifier: (draft distribution [vocab], position in the draft, a scalar tensor from 0) -> acceptance
    probability. max_gamma: maximum draft length.
    """

    def __init__(
        self, classifier: Callable[[Tensor, Tensor], Tensor], threshold: float = 0.5, max_gamma: int = 20
    ):
        self.classifier = classifier
        self.threshold = threshold
        self.max_gamma = max_gamma

    def plan(self, state: State) -> Budget:
        self.line: list[float] = []
        state.note("predicted", line=self.line, limit=self.threshold)
        return Budget(self.max_gamma, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        with torch.inference_mode():
            self.line.append(
                float(self.classifier(step.probs, to_device(torch.tensor(step.depth), step.probs.device)))
            )
        return self.line[-1] < self.threshold


class PredictedLength(Policy):
    """AdaEAGLE (Zhang et al. 2412.18910): before drafting, predict the number of tokens that will be
    accepted, and draft as many; 0 is possible.

    predict(state) -> expected number, or None if it is unknown: then ``max_gamma`` tokens are drafted.
    min_log_prob: if given, drafting continues beyond the prediction until a token's draft log-probability
    is below it. min_gamma, max_gamma: bounds of the draft length.
    """

    def __init__(
        self,
        predict: Callable[[State], float | None],
        max_gamma: int,
        min_log_prob: float | None = None,
        min_gamma: int = 0,
    ):
        self.predict = predict
        self.max_gamma = max(min_gamma, max_gamma)
        self.min_log_prob = min_log_prob
        self.min_gamma = min_gamma

    def plan(self, state: State) -> Budget:
        predicted = self.predict(state)
        self.wanted = (
            self.max_gamma
            if predicted is None
            else min(self.max_gamma, max(self.min_gamma, round(predicted)))
        )
        state.note(
            "length", gamma=self.wanted, **({} if predicted is None else {"predicted": round(predicted, 3)})
        )
        return Budget(self.wanted) if self.min_log_prob is None else Budget(self.max_gamma, stop=self._stop)

    def _stop(self, step: Step) -> bool:
        assert self.min_log_prob is not None  # plan() names this rule only then
        return (
            step.depth + 1 >= self.wanted
            and math.log(max(float(step.probs[step.token]), 1e-30)) < self.min_log_prob
        )


class OncePerPrompt(Policy):
    """BlockPilot (2606.31315): choose one draft length for the whole answer, in its first round.

    choose(state) -> draft length, or None if it is unknown: then ``max_gamma`` tokens are drafted, and the
    next round asks again. max_gamma: maximum draft length."""

    def __init__(self, choose: Callable[[State], int | None], max_gamma: int):
        self.choose = choose
        self.max_gamma = max_gamma
        self.gamma: int | None = None

    def plan(self, state: State) -> Budget:
        if self.gamma is None or state.round == 0:
            self.gamma = self.choose(state)
        gamma = self.max_gamma if self.gamma is None else min(self.gamma, self.max_gamma)
        state.note("length", gamma=gamma)
        return Budget(gamma)
