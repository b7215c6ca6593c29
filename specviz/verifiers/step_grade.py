"""Accept or reject a drafted reasoning step as a whole, by a grade from the target (SpecReason, Pan et al.
2504.07891).

The paper prompts the target for a digit from 0 to 9, which needs a capable model. Here the grade comes from
the pass that scores the step: nine times the geometric mean of its tokens' target probabilities.
Reward-guided decoding (Liao et al. 2501.19324) uses a reward model instead, and can accept with the reward
as probability.
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
    """Lossy verifier that accepts a drafted reasoning step, a chain of tokens, as a whole if its grade is
    at least ``min_grade``, from 0 to 9 (SpecReason, Pan et al. 2504.07891). A rejected step is replaced by
    one token of the target.

    The note "drift": for each accepted token, the log-probability of the argmax minus that of the token, in
    nats.
    """

    def __init__(self, min_grade: float = 7.0):
        self.min_grade = min_grade

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if not len(tree):
            return super().verify(tree, scores, state)
        count, path = len(tree), tuple(range(len(tree)))
        beliefs = scores.logits[:count].float().softmax(-1)  # row i is about token i
        token_probs = beliefs.gather(1, token_tensor(beliefs.device, tree.tokens)[:, None])[:, 0]
        grade, weight = self.grade_step(token_probs, scores)
        passed, u = (True, None) if weight >= 1 else state.rng.flip("verify", weight)
        state.note(
            "grade", grade=round(grade, 4), least=self.min_grade, passed=passed, length=count, **self.scale()
        )
        kept = token_probs.tolist()
        distributions = [tree.draft_probs(i) for i in path]
        drawn = [None if probs is None else tree.prob(i) for i, probs in enumerate(distributions)]
        if passed:
            state.note("drift", nats=(beliefs.amax(-1) / token_probs).log().tolist())
            decisions = tuple(
                Decision(i, "grade", kept[i], drawn[i], weight, u, "accepted", beliefs[i]) for i in path
            )
            return Verdict(path[:-1], tree.tokens[-1], "accepted", decisions)
        probs = state.sampling.probs(scores.logits[0])
        decision = Decision(0, "grade", kept[0], drawn[0], weight, u, "rejected", beliefs[0], probs)
        return Verdict((), state.rng.pick("verify", probs), "correction", (decision,), probs)

    def scale(self) -> dict[str, Any]:
        """Return further fields of the note "grade": the scale of the grade."""
        return {}

    def grade_step(self, token_probs: Tensor, scores: Scores) -> tuple[float, float]:
        """Return (grade of the step, probability that it is accepted). token_probs [tokens]: the target's
        probabilities of the step's tokens."""
        grade = 9 * math.exp(float(token_probs.log().mean()))
        return grade, float(grade >= self.min_grade)


class RewardGrade(StepGrade):
    """Lossy verifier that accepts a reasoning step by the score of a trained reward head (Liao et al.
    2501.19324).

    reward: the target's final hidden states [tokens, hidden] of the step -> its reward, a scalar in [0, 1].
    The step is accepted if the reward is at least ``min_grade``, or, with ``coin``, with the reward as
    probability.
    """

    hidden_states = frozenset({"final"})

    def __init__(self, reward: Callable[[Tensor], Tensor], min_grade: float = 0.7, coin: bool = False):
        super().__init__(min_grade)
        self.reward, self.coin = reward, coin

    def grade_step(self, token_probs: Tensor, scores: Scores) -> tuple[float, float]:
        with torch.inference_mode():
            found = float(self.reward(scores.hidden_states["final"][1 : len(token_probs) + 1]))
        if not float(token_probs.min()) > 0:  # a mask of the request forbids a token of the step
            return found, 0.0
        return found, found if self.coin else float(found >= self.min_grade)

    def scale(self) -> dict[str, Any]:
        return {"of": 1.0, "coin": self.coin}
