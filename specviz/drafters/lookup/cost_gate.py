"""A lookup costs nothing, but checking what it found does. This gate lets through as much of a draft as is expected to pay.

It learns how often the next drafted token is right, given how many tokens before it agree, those of the match and those of the
draft together; and what a pass costs more with a draft: a first row more than each further one. What it holds back is compared
with what is written afterwards all the same, so it learns from drafts that cost nothing. A lookup that takes a noticeable part of
a pass and finds nothing worth checking time after time is asked only now and then. It looks at past rounds and at the draft,
never at a draw to come: the output stays exact. It is ours; the papers draft whenever they find something, which is ``caution`` 0.
"""
from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import replace
from statistics import median

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target

AGREE = (0, 1, 2, 3, 4, 5, 7, 10, 14, 20)  # tokens that agree, in classes
RIGHT = (0.15, 0.22, 0.5, 0.6, 0.68, 0.72, 0.8, 0.9, 0.95, 0.98)  # how often the next one does, too: guesses, until it is learnt
ELSEWHERE = 2  # tokens that a match in another text counts less
TRUST, FADE = 3.0, 0.98  # tokens these guesses count for; how fast old rounds fade
FIRST, ROW = 0.2, 0.05  # what a draft adds to a pass, and each row of it, before it is measured; in passes
DOUBT, STEEPEST = 0.02, 0.5  # share of these guesses that comes back each round without a draft; what a row may cost at most
SHORT, TRIED = 8, 6  # tokens asked for at first; rows of the draft that first measures the price
WAITING = 64  # drafts whose fate is still open
CHEAP, PATIENCE, LONGEST = 0.02, 4, 15  # share of a pass a lookup may take; fruitless ones before it rests; rounds of rest


class Rate:
    """A share of successes that begins with a guess and forgets slowly."""

    def __init__(self, guess: float):
        self.good, self.tried = guess * TRUST, TRUST

    def learn(self, ok: bool) -> None:
        self.good, self.tried = self.good * FADE + ok, self.tried * FADE + 1

    @property
    def value(self) -> float:
        return min(0.995, self.good / self.tried)


class Price:
    """What a draft of n rows adds to a pass, in passes: a line through what was measured lately, first + n * row.

    It begins on two made-up measurements, and leans back to them while nothing is measured: a price that keeps the gate shut is
    doubted, or it would never be measured again.
    """

    def __init__(self):
        self.plain: deque[float] = deque(maxlen=15)  # seconds of passes without a draft
        self.measured, self.sums = False, GUESSED
        self.fit()

    def learn(self, nodes: int, seconds: float) -> None:
        """A pass took so long with so many nodes."""
        if not nodes:
            self.plain.append(seconds)
            if self.measured:
                self.sums = tuple(s + DOUBT * (g - s) for s, g in zip(self.sums, GUESSED))
                self.fit()
        elif self.plain and (usual := self.usual) > 0:
            more = min(5 * FIRST + STEEPEST * nodes, max(0.0, seconds / usual - 1))
            self.sums = tuple(0.8 * s + x for s, x in zip(self.sums, _point(nodes, more)))
            self.measured = True
            self.fit()

    def fit(self) -> None:
        """The line of least squares, never falling and never below 0."""
        w, x, xx, y, xy = self.sums
        apart = w * xx - x * x
        self.row = min(STEEPEST, max(0.0, (w * xy - x * y) / apart)) if apart > 1e-9 else ROW
        self.first = (y - self.row * x) / w
        if self.first < 0:
            self.first, self.row = 0.0, min(STEEPEST, xy / xx)

    @property
    def usual(self) -> float:
        """Seconds of a pass without a draft."""
        return median(self.plain)


def _point(nodes: int, more: float) -> tuple[float, ...]:
    return 1.0, nodes, nodes * nodes, more, nodes * more


GUESSED = tuple(a + b for a, b in zip(_point(1, FIRST + ROW), _point(16, FIRST + 16 * ROW)))


class CostGate(Drafter):
    """inner: a drafter of chosen nodes, parents before children and the best first, that says in ``matched`` how many tokens
    stand behind its last proposal. caution: how much of its cost a draft must be expected to bring back; 0 lets all through."""

    def __init__(self, inner: Drafter, caution: float = 1.0):
        self.inner, self.caution = inner, caution
        self.hidden_states, self.needs, self.restartable = inner.hidden_states, inner.needs, inner.restartable

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.rates, self.price = [Rate(x) for x in RIGHT], Price()
        self.fruitless = self.rest = 0
        self.waiting: deque[list] = deque(maxlen=WAITING)  # [tree, node reached, place of the next token, tokens that agree so far]
        self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if self.rest > 0:
            self.rest -= 1
            return DraftTree()
        began, told = state.clock.now(), len(state.notes)
        tree = self.inner.propose(state, replace(budget, gamma=min(budget.gamma, SHORT)))
        if budget.gamma > SHORT and self.promises(tree, state.tokens):
            del state.notes[told:]
            tree = self.inner.propose(state, budget)
        took = state.costs.decided(state.clock.now() - began)
        kept = self.let_through(tree, state) if len(tree) else tree
        self.fruitless = 0 if len(kept) else self.fruitless + 1
        if self.fruitless > PATIENCE and self.price.plain and took > CHEAP * self.price.usual:
            self.rest = min(LONGEST, 2 ** (self.fruitless - PATIENCE))
            if not len(tree):
                self.note_decision(state, 0, 0, 0)
            state.notes[-1][1]["rest"] = self.rest  # so the clock decided
        return kept

    def promises(self, tree: DraftTree, tokens: list[int]) -> bool:
        """Whether a short draft is worth checking to its end, so that a longer one may be worth more."""
        return len(tree) > 0 and max(tree.depths) >= SHORT and self.worth(tree, self.agree(tree, tokens)) == len(tree)

    def let_through(self, tree: DraftTree, state: State) -> DraftTree:
        """The part of the tree that is expected to pay."""
        agree = self.agree(tree, state.tokens)
        self.waiting.append([tree, -1, len(state.tokens), agree])
        count = self.worth(tree, agree)
        if not self.price.measured and len(self.price.plain) >= 3:  # to know the price is worth a small round that may not pay
            count = max(count, min(TRIED, len(tree)))
        self.note_decision(state, agree, len(tree), count)
        return tree if count == len(tree) else front(tree, count)

    def note_decision(self, state: State, agree: int, found: int, kept: int) -> None:
        state.note("gate", matched=agree, found=found, kept=kept, first=round(self.rate(agree).value, 3),
                   next=round(self.rate(agree + 1).value, 3), row=round(self.price.row, 4), extra=round(self.price.first, 4))

    def agree(self, tree: DraftTree, tokens: list[int]) -> int:
        """How many tokens before the place that is copied are those at the end of the text; what the drafter says, elsewhere."""
        place = tree.origin[0] if tree.origin else None
        if place is None:
            return self.inner.matched
        if place.source != "context":
            return max(0, self.inner.matched - ELSEWHERE)
        n = 0
        while n < AGREE[-1] and n < place.start and tokens[place.start - 1 - n] == tokens[-1 - n]:
            n += 1
        return n

    def rate(self, agree: int) -> Rate:
        return self.rates[bisect_right(AGREE, agree) - 1]

    def worth(self, tree: DraftTree, agree: int) -> int:
        """How many of its nodes bring the most tokens for the time they take; 0 where none do."""
        best, found, deepest, prob, hoped = 1.0, 0, 0, 1.0, 0.0
        for count, depth in enumerate(tree.depths, 1):
            if depth > deepest:
                prob *= self.rate(agree + deepest).value
                hoped, deepest = hoped + prob, depth
            pace = (1 + hoped) / (1 + self.caution * (self.price.first + self.price.row * count))
            if pace >= best:
                best, found = pace, count
            if prob < best * self.caution * self.price.row:  # and it only gets smaller: no further row brings back its price
                break
        return found

    def observe(self, state: State, outcome: Outcome) -> None:
        self.price.learn(len(outcome.tree), outcome.seconds["verify"])
        for _ in range(len(self.waiting)):
            entry = self.waiting.popleft()
            if self.follow(entry, state.tokens):
                self.waiting.append(entry)
        self.inner.observe(state, outcome)

    def follow(self, entry: list, tokens: list[int]) -> bool:
        """Walk a draft along what was written since; whether its end is still open."""
        tree, node, at, agree = entry
        chain = tree.depths[-1] == len(tree)
        while at < len(tokens):
            children = (node + 1,) if chain else tree.children(node)
            if not children or chain and node + 1 == len(tree):
                return False
            hit = next((c for c in children if tree.tokens[c] == tokens[at]), None)
            self.rate(agree).learn(hit is not None)
            if hit is None:
                return False
            node, at, agree = hit, at + 1, agree + 1
        entry[1:] = node, at, agree
        return True


def front(tree: DraftTree, count: int) -> DraftTree:
    """The first nodes of a tree of chosen ones, parents before children."""
    return DraftTree(tree.tokens[:count], tree.parents[:count], (-1,) * count, origin=tree.origin[:count]) if count else DraftTree()


def with_cost_gate(inner: Drafter, caution: float) -> Drafter:
    """The drafter behind a gate, or as it is where caution is 0."""
    return CostGate(inner, caution) if caution > 0 else inner
