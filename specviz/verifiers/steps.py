"""A drafted step is kept or refused as a whole, by a grade that the target gives it (SpecReason, Pan et al. 2504.07891).

The paper asks the target, in a turn of its own, for a digit from 0 to 9, which takes a model that can judge. Here the grade comes
from the pass that reads the step: nine times the geometric mean of the probabilities that the target gives its tokens.
"""
from __future__ import annotations

import math

from ..core import DraftTree, Scores, State, Trial, Verdict
from .token import TokenRejection


class Grade(TokenRejection):
    """least: grade from 0 to 9 from which on a step passes. Steps are chains.

    Drift: at each token kept, the log-probability it gives up against the target's best one, in nats.
    """

    def __init__(self, least: float = 7.0):
        self.least = least

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if not len(tree):
            return super().verify(tree, scores, state)
        count, path = len(tree), tuple(range(len(tree)))
        beliefs = scores.logits[:count].float().softmax(-1)  # row i is about token i
        likely = beliefs[path, tree.tokens]
        grade = 9 * math.exp(float(likely.log().mean()))
        state.note("grade", grade=round(grade, 4), least=self.least, passed=grade >= self.least, length=count)
        kept = likely.tolist()
        laws = [tree.law(i) for i in path]
        drawn = [None if law is None else float(law[x]) for law, x in zip(laws, tree.tokens)]
        if grade >= self.least:
            state.note("drift", nats=(beliefs.amax(-1) / likely).log().tolist())
            trials = tuple(Trial(i, "grade", kept[i], drawn[i], 1.0, None, "accepted", beliefs[i]) for i in path)
            return Verdict(path[:-1], tree.tokens[-1], "accepted", trials)
        law = state.sampling.probs(scores.logits[0])
        _, u = state.dice.flip("verify", 0.0)
        trial = Trial(0, "grade", kept[0], drawn[0], 0.0, u, "rejected", beliefs[0], law)
        return Verdict((), state.dice.pick("verify", law), "correction", (trial,), law)
