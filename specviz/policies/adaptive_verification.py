"""Verify as many draft tokens as repay their measured cost: adaptive verification of vLLM 0.32 (pull request
52228), for one request and for many.

A token's survival is the product of the predicted acceptances up to its place (acceptance_model.py). Of all
tokens that the batch has drafted, the B with the largest survival are verified, where B maximises (requests
+ survivals) / (seconds of drafting + seconds of the pass). The survivals of this round would tell which
tokens were drawn, so B is chosen from those of the round before.

vLLM's drafters write a whole block at once. A draft model pays for each step, so here it stops where its
next token would not repay its step, which is an addition; and ``threshold`` chooses, instead of a number B,
all tokens whose survival exceeds what one more token costs at the best speed so far.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core import Budget, DraftTree, JointPolicy, Outcome, State, Step
from .acceptance_model import MATCHES, AcceptanceModel, Match, MatchRates, log_odds
from .batch_budget import tokens_per_chain
from .batch_lengths import note_rows
from .goodput import OPENING, pass_features, round_costs
from .linear_cost import LinearCost

UNSEEN = 0.6  # initial mean acceptance of a place
WEIGHT = 0.1  # of a new prediction in the mean of its place
ASLEEP = 8  # rounds without drafts after which a short draft is tried
FIRST = 4  # draft length of the opening rounds, before costs are measured
WHY = "{count} of its {drafted} drafted tokens are expected to repay their cost"  # of a note's rows
ALL = "this round verifies everything that was drafted, to learn from it"


@dataclass(frozen=True)
class Place:
    """A drafted token before it is tested: what its acceptance was predicted from, and the prediction.
    feature: log-odds of a draft model; match: of a copied token instead."""

    feature: float | None
    match: Match | None
    prob: float


class AdaptiveVerification(JointPolicy):
    """Choose how many draft tokens of a batch to verify, from predicted acceptance and measured costs
    (adaptive verification of vLLM 0.32), for drafters of chains.

    max_gamma: longest draft; every: rounds between two refits of the model; uncut: every so many rounds
    everything that was drafted is verified, so that the labels are not only of tokens that looked good (0:
    never); threshold: choose tokens by a threshold on their survival instead of by a number; steps: the
    drafter pays for each token (a draft model), so it stops where a step does not pay; costs: seconds of
    (draft, pass), None: measured."""

    def __init__(
        self,
        max_gamma: int = 8,
        every: int = 16,
        uncut: int = 16,
        threshold: bool = True,
        steps: bool = True,
    ):
        self.max_gamma, self.uncut, self.threshold, self.steps = max_gamma, uncut, threshold, steps
        self.model, self.copies = AcceptanceModel(every), MatchRates()
        self.pass_cost, self.draft_cost = LinearCost(len(pass_features(1, 0, 0))), LinearCost(2)
        self.means = [UNSEEN] * max_gamma  # predicted acceptance of each place, averaged
        self.rounds = self.idle = 0
        self.whole = False  # whether this round verifies all that is drafted
        self.budget, self.limit = 0, 0.0  # tokens to verify, or the smallest survival of one
        self.step_limit = 0.0  # smallest survival for which another draft step pays
        self.first_cost = 0.0  # expected tokens that must repay that a pass has a draft at all
        self.lines: list[list[Place]] = []  # this round's places, one list per request
        self.before: list[list[float]] = []  # survivals of the round before

    def confidence(self, step: Step) -> float:
        """Return the probability that a place's feature is computed from: that of the draft's most probable
        token, which is known before the token is drawn."""
        return float(step.probs.max())  # one synchronisation per draft step

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        self.lines, ranked = [[] for _ in states], []
        opening = self.rounds < len(OPENING)
        gamma = math.ceil(FIRST * OPENING[self.rounds]) if opening else self.max_gamma
        if not opening:
            self._choose(states)
        if not opening and self.steps and not self.budget:
            gamma = 1 if self.idle >= ASLEEP else 0
        self.whole = opening or gamma == 1 or bool(self.uncut and self.rounds % self.uncut == 0)
        gamma = min(gamma, self.max_gamma)
        return [Budget(gamma, stop=self._recorder(line, i, ranked)) for i, line in enumerate(self.lines)]

    def _recorder(
        self, line: list[Place], mine: int, ranked: list[tuple[float, int, int]]
    ) -> Callable[[Step], bool]:
        """Return a stop function that records each place's prediction in ``line``, and ends a draft whose
        next token would not be verified or would not pay. ranked: all places of the round, largest survival
        first."""
        survival = 1.0

        def stop(step: Step) -> bool:
            nonlocal survival
            feature, place = log_odds(self.confidence(step)), len(line)
            line.append(Place(feature, None, self.model.prob(feature, place)))
            survival *= line[-1].prob
            insort(ranked, (-survival, place, mine))
            if self.whole or not self.steps:
                return False
            if self.threshold:
                following = self.means[min(place + 1, self.max_gamma - 1)]
                return survival < self.limit or survival * following < self.step_limit
            return bisect_left(ranked, (-survival, place, mine)) >= self.budget - 1

        return stop

    def _choose(self, states: Sequence[State]) -> None:
        """Choose budget and thresholds of this round from the survivals of the round before; places that it
        did not draft count with their mean acceptance."""
        many, context = len(states), sum(len(state.tokens) for state in states)
        pool: list[tuple[float, int]] = []
        for i in range(many):
            line = list(self.before[i]) if i < len(self.before) else []
            while self.steps and len(line) < self.max_gamma:
                line.append((line[-1] if line else 1.0) * self.means[len(line)])
            pool += [(survival, depth) for depth, survival in enumerate(line)]
        pool.sort(key=lambda one: (-one[0], one[1]))
        seconds = self.pass_cost.seconds(*pass_features(many, 0, context))
        rate, found, gain, levels = many / max(seconds, 1e-9), 0, float(many), 0
        for count, (survival, depth) in enumerate(pool, 1):
            gain, levels = gain + survival, max(levels, depth + 1)
            seconds = self.pass_cost.seconds(*pass_features(many + count, levels, context))
            seconds += self.draft_cost.seconds(levels, count) if self.steps else 0.0
            if gain / max(seconds, 1e-9) > rate:
                rate, found = gain / max(seconds, 1e-9), count
        now = pass_features(many + found, 1, context)
        more = pass_features(many + found + 1, 1, context)
        row = self.pass_cost.seconds(*more) - self.pass_cost.seconds(*now)
        step = self.draft_cost.coefficients[0] / many + self.draft_cost.coefficients[1] if self.steps else 0.0
        without = self.pass_cost.seconds(*pass_features(many, 0, context))
        with_draft = self.pass_cost.seconds(*pass_features(many, 1, context))
        self.budget, self.limit, self.step_limit = found, min(1.0, rate * row), min(1.0, rate * (row + step))
        self.first_cost = rate * (with_draft - without) / many

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        for state, tree, line in zip(states, trees, self.lines):
            self._copied(state, tree, line)
        survivals = [_survivals(line[: len(tree)]) for line, tree in zip(self.lines, trees)]
        self.before = survivals
        if self.whole:
            lengths = [len(tree) for tree in trees]
        elif self.threshold or not self.steps:
            lengths = [self._repaid(line, survival) for line, survival in zip(self.lines, survivals)]
        else:
            lengths = tokens_per_chain(survivals, self.budget)
        # a tree with branches is left as it is
        lengths = [n if _is_chain(tree) else len(tree) for n, tree in zip(lengths, trees)]
        kept = [
            tree if n >= len(tree) else tree.keep(range(n), by_token=False) for tree, n in zip(trees, lengths)
        ]
        why = [
            ALL if self.whole else WHY.format(count=len(few), drafted=len(tree))
            for tree, few in zip(trees, kept)
        ]
        note_rows(states, trees, kept, why, budget=sum(lengths))
        for state, survival in zip(states, survivals):
            if survival:
                state.note(
                    "predicted",
                    line=[round(prob, 4) for prob in survival],
                    limit=0.0 if self.whole else round(self.limit, 4),
                    survival=True,
                )
        return kept

    def _repaid(self, line: list[Place], survival: list[float]) -> int:
        """Return how many tokens of a chain have a survival above the threshold. A copy must also repay
        that the pass has a draft at all; of a sampled draft, dropping all because of later places would be
        a choice by the drawn tokens."""
        count = sum(prob >= self.limit for prob in survival)
        copied = all(place.feature is None for place in line)
        gain = sum(survival[:count]) - count * self.limit
        return 0 if copied and gain < self.first_cost else count

    def _copied(self, state: State, tree: DraftTree, line: list[Place]) -> None:
        """Predict the copied tokens of a chain that no draft distribution describes."""
        if len(line) >= len(tree) or not _is_chain(tree) or any(k >= 0 for k in tree.draw[len(line) :]):
            return
        match = match_of(tree, state.tokens)
        for place in range(len(line), len(tree)):
            line.append(Place(None, match, self.copies.prob(match, place)))

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        self.rounds += 1
        found = round_costs(states, outcomes)
        if self.rounds > 1:  # the first round includes one-time work
            context = sum(len(state.tokens) for state in states)
            self.pass_cost.learn(
                found.rows, pass_features(found.rows, found.levels, context), found.pass_seconds
            )
            drafted = [len(line) for line in self.lines]
            if any(drafted):
                point = (max(drafted), sum(drafted))
                self.draft_cost.learn(point, point, found.draft_seconds)
        self.idle = 0 if found.steps else self.idle + 1
        for line, outcome in zip(self.lines, outcomes):
            if _is_chain(outcome.tree):
                self._label(line, outcome)
        self.model.end_round()

    def _label(self, line: list[Place], outcome: Outcome) -> None:
        """Learn from a request's verified chain: accepted places, the first rejected one, and no later
        one."""
        accepted = len(outcome.verdict.path) + (outcome.verdict.kind == "accepted")
        rejected = outcome.verdict.kind == "correction"
        for place, one in enumerate(line[: min(accepted + rejected, len(outcome.tree))]):
            ok = place < accepted
            if one.feature is not None:
                self.model.learn(one.feature, place, ok)
            elif one.match is not None:
                self.copies.learn(one.match, place, ok)
        for place, one in enumerate(line[: self.max_gamma]):
            if one.feature is not None:
                self.means[place] += WEIGHT * (one.prob - self.means[place])


def _survivals(line: Sequence[Place]) -> list[float]:
    """Return the product of the predicted acceptances up to and including each place."""
    out, survival = [], 1.0
    for place in line:
        survival *= place.prob
        out.append(survival)
    return out


def _is_chain(tree: DraftTree) -> bool:
    return tree.parents == tuple(range(-1, len(tree) - 1)) and not tree.probes


def match_of(tree: DraftTree, tokens: Sequence[int]) -> Match:
    """Return the source of a copied chain and how many tokens before the copied place equal the last tokens
    of the text; 0 for a copy from another text."""
    origin = tree.origin[0] if tree.origin else None
    if origin is None or origin.source != "context":
        return (origin.source if origin else "", 0)
    n = 0
    while n < MATCHES[-1] and n < origin.start and tokens[origin.start - 1 - n] == tokens[-1 - n]:
        n += 1
    return origin.source, n
