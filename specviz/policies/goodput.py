"""SmartSpec (Liu et al. 2406.14066): the draft length with the most goodput, that is tokens a second that end up written.

A length k brings each of B requests (1 - a^(k+1)) / (1 - a) tokens, where a is the share of tried tokens accepted lately, and
costs a pass of B (k + 1) rows, with all that follows it, and k draft steps of B rows. What these take is measured: each is a line
over its sizes. A request that was not drafted for yet has its text read by the draft model first; that counts as spread over the
rounds it has left. With many requests rows grow dear, drafts shrink, and at length 0 speculation is off.
"""
from __future__ import annotations

from typing import Sequence

from ..core import Budget, DraftTree, JointPolicy, Outcome, State
from .cost import MEMORY, PRIOR, tokens
from .lines import Line
from .rows import note_rows

OPENING = (1, 0, 1, 1)  # of the first rounds, with drafts and without: a line needs several places
FEW = 4  # one of so many requests drafts in these rounds: measuring, too, costs the reading of its text; this is ours
ASLEEP = 32  # rounds without drafts after which one request tries, as acceptance and costs may have changed; so is this,
SHARE = 0.02  # and the part of the time since the last draft that trying may cost


class Goodput(JointPolicy):
    """first: length of the opening rounds, while nothing is measured; most: longest draft considered."""

    def __init__(self, first: int = 4, most: int = 8):
        self.first, self.most, self.gamma = first, most, first
        self.passes, self.steps = Line(3), Line(3)  # over (1, rows, context); over (levels, rows, tokens read first)
        self.good, self.tried, self.rounds = 0.7 * PRIOR, PRIOR, 0
        self.asleep, self.idle, self.trying = 0, 0.0, False  # rounds and seconds since the last draft
        self.speeds: list[float] = []
        self._read: list[tuple[State, int]] = []  # the requests, and tokens of each that the draft model has read
        self._unread = 0  # by the requests drafted for in this round

    @property
    def acceptance(self) -> float:
        return min(self.good / self.tried, 0.999)

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        read = {id(state): count for state, count in self._read}
        self._read = [(state, read.get(id(state), 0)) for state in states]
        unread = [len(state.tokens) - count for state, count in self._read]
        drafting, self.trying = len(states), False
        if self.rounds < len(OPENING):
            self.gamma, drafting = self.first * OPENING[self.rounds], -(-len(states) // FEW)
        else:
            context = sum(len(state.tokens) for state in states)
            share = sum(n / max(1.0, state.left) for n, state in zip(unread, states))
            self.speeds = [self.goodput(len(states), k, context, share) for k in range(self.most + 1)]
            self.gamma = max(range(self.most + 1), key=self.speeds.__getitem__)
            self.trying = not self.gamma and self._may_try(min(unread))
        length, drafting = (self.first, 1) if self.trying else (self.gamma, drafting)
        late = self.rounds == len(OPENING) - 1  # others, whose text must be read
        mine = sorted(range(len(states)), key=unread.__getitem__, reverse=late)[:drafting]
        lengths = [length * (i in mine) for i in range(len(states))] if drafting < len(states) else [length] * len(states)
        self._unread = sum(n for n, length in zip(unread, lengths) if length)
        return [Budget(length) for length in lengths]

    def _may_try(self, unread: int) -> bool:
        """Whether a request drafts though no length promises to pay: seldom, and for little of the time."""
        costs = self.steps.seconds(self.first, self.first, unread) + self.passes.line[1] * self.first
        return self.asleep >= ASLEEP and costs <= SHARE * self.idle

    def goodput(self, requests: int, k: int, context: int, unread: float = 0.0) -> float:
        """Tokens a second that so many requests would write with drafts of length k. unread: what the draft model must read first, in
        tokens for each that the requests may still write."""
        each = tokens(self.acceptance, k)
        seconds = self.passes.seconds(1, requests * (k + 1), context)
        seconds += self.steps.seconds(k, requests * k, unread * each) if k else 0.0
        return requests * each / max(seconds, 1e-9)

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        why = "nothing is measured yet" if not self.speeds else f"length {self.gamma} promises most tokens a second"
        if self.trying:
            why += "; one request tries whether that still holds"
        note_rows(states, trees, trees, [why] * len(states), gamma=self.gamma, acceptance=self.acceptance,
                  speeds=[round(speed, 3) for speed in self.speeds])
        return trees

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        self.rounds += 1
        rows = sum(len(outcome.tree) + 1 for outcome in outcomes)
        depths = [max(outcome.tree.depths, default=0) for outcome in outcomes]
        levels, steps = max(depths), sum(depths)
        spent = dict(outcomes[0].seconds)
        for name in ("judge", "commit", "observe"):  # these are each request's own
            spent[name] = sum(outcome.seconds.get(name, 0.0) for outcome in outcomes)
        spent = states[0].costs.charged(rows - 1, levels, spent)
        passed = sum(seconds for name, seconds in spent.items() if name not in ("plan", "draft"))
        if self.rounds > 1:  # the first round's times include what is only done once
            self.passes.learn(rows, (1.0, rows, sum(len(state.tokens) for state in states)), passed)
            if steps:
                self.steps.learn((levels, steps, self._unread // 32), (levels, steps, self._unread), spent["draft"])
        self.asleep, self.idle = (0, 0.0) if steps else (self.asleep + 1, self.idle + passed)
        drafted = {id(state) for state, depth in zip(states, depths) if depth}
        self._read = [(state, len(state.tokens) if id(state) in drafted else count) for state, count in self._read]
        if steps:
            accepted = sum(len(outcome.verdict.path) for outcome in outcomes)
            refused = sum(len(outcome.verdict.path) < len(outcome.tree) for outcome in outcomes)
            self.good, self.tried = self.good * MEMORY + accepted, self.tried * MEMORY + accepted + refused
