"""Accept or reject a drafted reasoning step as a whole, by a grade from the target (SpecReason, Pan et al. 2504.07891).

The paper prompts the target for a digit from 0 to 9, which needs a capable model. Here the grade comes from the pass that scores
the step: nine times the geometric mean of its tokens' target probabilities. Reward-guided decoding (Liao et al. 2501.19324) uses
a reward model instead, and can accept with the reward as probability.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict, token_tensor
from .token_rejection import TokenRejection


class StepGrade(TokenRejection):
    """Accept a drafted reasoning step if its grade is high enough (SpecReason).

    least: smallest grade that is accepted, 0 to 9. Steps are chains.

    Drift: the log-probability of the best token minus that of each kept token, in nats.
    """

    def __init__(self, least: float = 7.0):
        self.least = least

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if not len(tree):
            return super().verify(tree, scores, state)
        count, path = len(tree), tuple(range(len(tree)))
        beliefs = scores.logits[:count].float().softmax(-1)  # row i is about token i
        likely = beliefs.gather(1, token_tensor(beliefs.device, tree.tokens)[:, None])[:, 0]
        grade, weight = self.grade_step(likely, scores)
        passed, u = (True, None) if weight >= 1 else state.rng.flip("verify", weight)
        state.note("grade", grade=round(grade, 4), least=self.least, passed=passed, length=count, **self.scale())
        kept = likely.tolist()
        distributions = [tree.draft_probs(i) for i in path]
        drawn = [None if probs is None else tree.prob(i) for i, probs in enumerate(distributions)]
        if passed:
            state.note("drift", nats=(beliefs.amax(-1) / likely).log().tolist())
            decisions = tuple(Decision(i, "grade", kept[i], drawn[i], weight, u, "accepted", beliefs[i]) for i in path)
            return Verdict(path[:-1], tree.tokens[-1], "accepted", decisions)
        probs = state.sampling.probs(scores.logits[0])
        decision = Decision(0, "grade", kept[0], drawn[0], weight, u, "rejected", beliefs[0], probs)
        return Verdict((), state.rng.pick("verify", probs), "correction", (decision,), probs)

    def scale(self) -> dict[str, Any]:
        """Return the fields of the note "grade" that describe the scale."""
        return {}

    def grade_step(self, likely: Tensor, scores: Scores) -> tuple[float, float]:
        """Return (grade of the step, probability that it is kept). likely: the target's probabilities [tokens] of the
        step's tokens."""
        grade = 9 * math.exp(float(likely.log().mean()))
        return grade, float(grade >= self.least)


class RewardGrade(StepGrade):
    """Accept a reasoning step by the score of a reward head.

    reward: hidden states [tokens, hidden] of a step -> its reward, a scalar. coin: accept with the reward as
    probability, instead of accepting rewards above ``least``.
    """

    hidden_states = frozenset({"final"})

    def __init__(self, reward: Callable[[Tensor], Tensor], least: float = 0.7, coin: bool = False):
        super().__init__(least)
        self.reward, self.coin = reward, coin

    def grade_step(self, likely: Tensor, scores: Scores) -> tuple[float, float]:
        with torch.inference_mode():
            found = float(self.reward(scores.hidden_states["final"][1:len(likely) + 1]))
        if not float(likely.min()) > 0:  # a mask of the request forbids a token of the step
            return found, 0.0
        return found, found if self.coin else float(found >= self.least)

    def scale(self) -> dict[str, Any]:
        return {"of": 1.0, "coin": self.coin}
