"""SmartSpec (Liu et al. 2406.14066): the draft length with the most goodput, that is tokens a second that end up written.

A length k brings each of B requests (1 - a^(k+1)) / (1 - a) tokens, where a is the share of tried tokens accepted lately, and
costs a pass of B (k + 1) rows, with all that follows it, and k draft steps of B rows. What these take is measured: each is a sum
over its sizes, a pass's one that may bend upwards. A request that was not drafted for yet has its text read by the draft model
first; that counts as spread over what it has left to write, and where it does not pay the request is left out. With many requests
rows grow dear, drafts shrink, and at length 0 speculation is off.
"""
from __future__ import annotations

import math
from itertools import accumulate
from typing import Sequence

from ..core import Budget, DraftTree, JointPolicy, Outcome, State
from .cost import MEMORY, PRIOR, tokens
from .lines import Line
from .rows import note_rows

OPENING = (1, 0, 0.5, 1)  # of the first rounds, with whole drafts, halves and none: a line needs several places
FEW = 4  # one of so many requests drafts in these rounds: measuring, too, costs the reading of its text; this is ours
ASLEEP = 8  # rounds without drafts after which one request tries, as acceptance and costs may have changed; so is this,
MUCH = 16  # tokens: fewer are read with a draft's first, and what that takes drowns in what passes waver by
BENDS = (8, 24)  # rows from which each may cost more: a machine waits for its memory with few, and computes with many
SHARE = 0.02  # and the part of the time since the last draft that trying may cost


def sizes(rows: int, levels: int, context: int) -> tuple[float, ...]:
    """What a pass's seconds are a sum over: itself, its rows, those beyond each bend, any draft at all, the text that it looks back on."""
    return (1.0, rows, *(max(0, rows - bend) for bend in BENDS), float(levels > 0), context)


class Goodput(JointPolicy):
    """first: length of the opening rounds, while nothing is measured; most: longest draft considered."""

    def __init__(self, first: int = 4, most: int = 8):
        self.first, self.most, self.gamma = first, most, first
        self.passes, self.steps = Line(len(sizes(1, 0, 0))), Line(3)  # the drafts' over (levels, rows, tokens read first)
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
        unread = [n if (n := len(state.tokens) - count) >= MUCH else 0 for state, count in self._read]
        self.trying = False
        if self.rounds < len(OPENING):
            self.gamma, drafting = math.ceil(self.first * OPENING[self.rounds]), -(-len(states) // FEW)
            late = self.rounds == len(OPENING) - 1  # others, whose text must be read
            order = sorted(range(len(states)), key=unread.__getitem__, reverse=late)
        else:
            reading = [n / max(1.0, state.left) for n, state in zip(unread, states)]
            order = sorted(range(len(states)), key=reading.__getitem__)
            self.gamma, drafting = self._best([reading[i] for i in order], sum(len(state.tokens) for state in states))
            self.trying = not self.gamma and self._may_try(min(unread))
        length, drafting = (self.first, 1) if self.trying else (self.gamma, drafting)
        mine = set(order[:drafting])
        lengths = [length * (i in mine) for i in range(len(states))]
        self._unread = sum(n for n, length in zip(unread, lengths) if length)
        return [Budget(length) for length in lengths]

    def _best(self, reading: Sequence[float], context: int) -> tuple[int, int]:
        """The length, and for how many requests, those first that have least to be read for them. ``reading``: tokens of that for each
        token that a request may still write, in order: who comes later costs more, so that a walk finds the best number."""
        many, read = len(reading), [0.0, *accumulate(reading)]
        found, n = [(self.goodput(many, 0, context), many)], many
        for k in range(1, self.most + 1):
            speed = self.goodput(many, k, context, read[n], n)
            for step in (-1, 1):
                while 1 <= n + step <= many and (other := self.goodput(many, k, context, read[n + step], n + step)) > speed:
                    speed, n = other, n + step
            found.append((speed, n))
        self.speeds = [speed for speed, _ in found]
        gamma = max(range(len(found)), key=self.speeds.__getitem__)
        return gamma, found[gamma][1]

    def _may_try(self, unread: int) -> bool:
        """Whether a request drafts though no length promises to pay: seldom, and for little of the time."""
        costs = self.steps.seconds(self.first, self.first, unread) + self.passes.line[1] * self.first
        return self.asleep >= ASLEEP and costs <= SHARE * self.idle

    def goodput(self, requests: int, k: int, context: int, unread: float = 0.0, drafting: int | None = None) -> float:
        """Tokens a second that so many requests would write with drafts of length k for ``drafting`` of them, or for all. unread: what
        the draft model must read first, in tokens for each that the requests may still write."""
        drafting = requests if drafting is None else drafting
        each = tokens(self.acceptance, k)
        rows = requests + drafting * k
        seconds = self.passes.seconds(*sizes(rows, k, context))
        seconds += self.steps.seconds(k, drafting * k, unread * each) if k else 0.0
        return (requests + drafting * (each - 1)) / max(seconds, 1e-9)

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
            self.passes.learn(rows, sizes(rows, levels, sum(len(state.tokens) for state in states)), passed)
            if steps:
                self.steps.learn((levels, steps, self._unread // 32), (levels, steps, self._unread), spent["draft"])
        self.asleep, self.idle = (0, 0.0) if steps else (self.asleep + 1, self.idle + passed)
        drafted = {id(state) for state, depth in zip(states, depths) if depth}
        self._read = [(state, len(state.tokens) if id(state) in drafted else count) for state, count in self._read]
        if steps:
            accepted = sum(len(outcome.verdict.path) for outcome in outcomes)
            refused = sum(len(outcome.verdict.path) < len(outcome.tree) for outcome in outcomes)
            self.good, self.tried = self.good * MEMORY + accepted, self.tried * MEMORY + accepted + refused
