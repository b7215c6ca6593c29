"""Choose the draft length of a batch by goodput, the accepted tokens per second: SmartSpec (Liu et al.
2406.14066).

Length k yields (1 - a^(k+1)) / (1 - a) tokens for each of B requests, where a is the recent acceptance
rate, and costs one forward pass of B (k + 1) tokens and k draft steps of B tokens. Both costs are linear
models fitted to measurements; the one of the forward pass is piecewise linear. A request without a draft so
far needs a draft-model prefill first; its cost is spread over the tokens left to generate, and the request
is left out where it does not pay. With many requests verification becomes compute-bound, drafts shrink, and
length 0 switches speculation off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ..core import Budget, DraftTree, JointPolicy, Outcome, State
from ..core.chip_model import tokens_per_round
from .batch_lengths import note_rows
from .cost_ratio import MEMORY, PRIOR
from .linear_cost import LinearCost

OPENING = (
    1,
    0,
    0.5,
    1,
)  # draft length of the first rounds, as a share of ``first``: a linear fit needs several points
FEW = (
    4  # one request in FEW drafts in these rounds, because measuring costs a draft prefill; not in the paper
)
ASLEEP = 8  # rounds without drafts after which one request tries again; not in the paper
MUCH = 16  # uncached tokens below this count are not charged as a prefill: the cost is within the noise of a pass
BENDS = (8, 24)  # pass sizes at which the slope may rise: memory-bound below, compute-bound above
SHARE = 0.02  # largest share of the time since the last draft that a trial may cost


def pass_features(rows: int, levels: int, context: int) -> tuple[float, ...]:
    """Return the features from which the time of a forward pass is predicted: 1, tokens, tokens beyond each
    of BENDS, 1 if there is a draft else 0, cached tokens.

    rows: tokens in the pass; levels: depth of the draft; context: cached tokens of all requests."""
    return (1.0, rows, *(max(0, rows - bend) for bend in BENDS), float(levels > 0), context)


class RoundCosts(NamedTuple):
    """Sizes and seconds of a round of a batch. rows: tokens in the pass; depths: depth of each request's
    draft; pass_seconds: of everything but planning and drafting."""

    rows: int
    depths: list[int]
    pass_seconds: float
    draft_seconds: float

    @property
    def levels(self) -> int:
        """The depth of the deepest draft."""
        return max(self.depths)

    @property
    def steps(self) -> int:
        """The depths of all drafts together."""
        return sum(self.depths)


def round_costs(states: Sequence[State], outcomes: Sequence[Outcome]) -> RoundCosts:
    """Return sizes and seconds of a round of a batch, as a policy may use them."""
    rows = sum(len(outcome.tree) + 1 for outcome in outcomes)
    depths = [max(outcome.tree.depths, default=0) for outcome in outcomes]
    spent = dict(outcomes[0].seconds)
    for name in ("judge", "commit", "observe"):  # measured per request
        spent[name] = sum(outcome.seconds.get(name, 0.0) for outcome in outcomes)
    spent = states[0].costs.charged(rows - 1, max(depths), spent)
    passed = sum(seconds for name, seconds in spent.items() if name not in ("plan", "draft"))
    return RoundCosts(rows, depths, passed, spent["draft"])


class Goodput(JointPolicy):
    """Choose the draft length of a batch, and the requests that draft, by expected goodput, accepted tokens
    per second (SmartSpec, Liu et al. 2406.14066).

    first: draft length of the opening rounds, before costs are measured; max_gamma: longest draft considered.
    """

    def __init__(self, first: int = 4, max_gamma: int = 8):
        self.first = first
        self.max_gamma = max_gamma
        self.gamma = first
        self.pass_cost = LinearCost(len(pass_features(1, 0, 0)))
        self.draft_cost = LinearCost(3)  # features: (levels, draft tokens, prefilled tokens)
        self.accepted = 0.7 * PRIOR
        self.tested = PRIOR
        self.rounds = 0
        self.rounds_without_draft = 0
        self.seconds_without_draft = 0.0
        self.is_trial = False
        self.goodputs: list[float] = []
        self._read: list[
            tuple[State, int]
        ] = []  # requests and the number of tokens in the draft model's cache for each
        self._unread = 0  # tokens to prefill for the requests drafted for in this round

    @property
    def acceptance(self) -> float:
        """Recent acceptance rate, an exponential average; at most 0.999."""
        return min(self.accepted / self.tested, 0.999)

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        read = {id(state): count for state, count in self._read}
        self._read = [(state, read.get(id(state), 0)) for state in states]
        unread = [n if (n := len(state.tokens) - count) >= MUCH else 0 for state, count in self._read]
        self.is_trial = False
        if self.rounds < len(OPENING):
            self.gamma, drafting = math.ceil(self.first * OPENING[self.rounds]), -(-len(states) // FEW)
            late = self.rounds == len(OPENING) - 1  # requests that need a draft prefill
            order = sorted(range(len(states)), key=unread.__getitem__, reverse=late)
        else:
            reading = [n / max(1.0, state.left) for n, state in zip(unread, states)]
            order = sorted(range(len(states)), key=reading.__getitem__)
            self.gamma, drafting = self._best(
                [reading[i] for i in order], sum(len(state.tokens) for state in states)
            )
            self.is_trial = not self.gamma and self._may_try(min(unread))
        length, drafting = (self.first, 1) if self.is_trial else (self.gamma, drafting)
        mine = set(order[:drafting])
        lengths = [length * (i in mine) for i in range(len(states))]
        self._unread = sum(n for n, length in zip(unread, lengths) if length)
        return [Budget(length) for length in lengths]

    def _best(self, reading: Sequence[float], context: int) -> tuple[int, int]:
        """Return the draft length and the number of requests to draft for, cheapest prefills first.
        ``reading``: prefill tokens per token left to generate, ascending, so that a local search finds the
        best number of requests."""
        many, read = len(reading), [0.0, *accumulate(reading)]
        found, n = [(self.goodput(many, 0, context), many)], many
        for k in range(1, self.max_gamma + 1):
            speed = self.goodput(many, k, context, read[n], n)
            for step in (-1, 1):
                while (
                    1 <= n + step <= many
                    and (other := self.goodput(many, k, context, read[n + step], n + step)) > speed
                ):
                    speed, n = other, n + step
            found.append((speed, n))
        self.goodputs = [speed for speed, _ in found]
        gamma = max(range(len(found)), key=self.goodputs.__getitem__)
        return gamma, found[gamma][1]

    def _may_try(self, unread: int) -> bool:
        """Return whether one request drafts although no length is expected to pay: rarely, for a bounded
        share of the time, so that estimates stay current."""
        costs = (
            self.draft_cost.seconds(self.first, self.first, unread)
            + self.pass_cost.coefficients[1] * self.first
        )
        return self.rounds_without_draft >= ASLEEP and costs <= SHARE * self.seconds_without_draft

    def goodput(
        self, requests: int, k: int, context: int, unread: float = 0.0, drafting: int | None = None
    ) -> float:
        """Return the expected tokens per second of the batch if ``drafting`` of its ``requests`` (None:
        all) draft k tokens.

        context: cached tokens of all requests; unread: tokens that the draft model must prefill first, per
        token left to generate."""
        drafting = requests if drafting is None else drafting
        each = tokens_per_round(self.acceptance, k)
        rows = requests + drafting * k
        seconds = self.pass_cost.seconds(*pass_features(rows, k, context))
        seconds += self.draft_cost.seconds(k, drafting * k, unread * each) if k else 0.0
        return (requests + drafting * (each - 1)) / max(seconds, 1e-9)

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        why = (
            "nothing is measured yet"
            if not self.goodputs
            else f"length {self.gamma} has the highest expected tokens per second"
        )
        if self.is_trial:
            why += "; one request drafts to update the estimate"
        note_rows(
            states,
            trees,
            trees,
            [why] * len(states),
            gamma=self.gamma,
            acceptance=self.acceptance,
            speeds=[round(speed, 3) for speed in self.goodputs],
        )
        return trees

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        self.rounds += 1
        found = round_costs(states, outcomes)
        depths, steps = found.depths, found.steps
        if self.rounds > 1:  # the first round includes one-time work
            context = sum(len(state.tokens) for state in states)
            self.pass_cost.learn(
                found.rows, pass_features(found.rows, found.levels, context), found.pass_seconds
            )
            if steps:
                self.draft_cost.learn(
                    (found.levels, steps, self._unread // 32),
                    (found.levels, steps, self._unread),
                    found.draft_seconds,
                )
        self.rounds_without_draft = 0 if steps else self.rounds_without_draft + 1
        self.seconds_without_draft = 0.0 if steps else self.seconds_without_draft + found.pass_seconds
        drafted = {id(state) for state, depth in zip(states, depths) if depth}
        self._read = [
            (state, len(state.tokens) if id(state) in drafted else count) for state, count in self._read
        ]
        if steps:
            accepted = sum(len(outcome.verdict.path) for outcome in outcomes)
            refused = sum(len(outcome.verdict.path) < len(outcome.tree) for outcome in outcomes)
            self.accepted, self.tested = (
                self.accepted * MEMORY + accepted,
                self.tested * MEMORY + accepted + refused,
            )
