"""A lookup costs nothing, but checking what it found does. This gate lets through as much of a draft as is expected to pay.

For each length of match it learns how often the first drafted token is right and how often the next one is, given the one
before; and how much a row adds to a pass. What it holds back is compared with what is written afterwards all the same, so it
learns from drafts that cost nothing. A lookup that takes a noticeable part of a pass and finds nothing worth checking time after
time is asked only now and then. It looks at past rounds and at the draft, never at a draw to come: the output stays exact.
It is ours; the papers draft whenever they find something, which is ``caution`` 0.
"""
from __future__ import annotations

from collections import deque
from statistics import median

from ..core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target

FIRST = (0.2, 0.3, 0.45, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)  # how often a draft behind a match of 0, 1, ... 8 or more tokens begins well
NEXT, TRUST, FADE = 0.8, 3.0, 0.98  # how often it goes on well; tokens these guesses count for; how fast old rounds fade
SLOPE, STEEPEST = 0.06, 0.5  # what a row adds to a pass, before it is measured and at most, in passes
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


class Gate(Drafter):
    """inner: a drafter of chosen nodes, parents before children and the best first, that says in ``matched`` how many tokens
    stand behind its last proposal. caution: how much of its cost a draft must be expected to bring back; 0 lets all through."""

    def __init__(self, inner: Drafter, caution: float = 1.0):
        self.inner, self.caution = inner, caution
        self.taps, self.needs, self.restartable = inner.taps, inner.needs, inner.restartable

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.first, self.next = [Rate(x) for x in FIRST], [Rate(NEXT) for _ in FIRST]
        self.slope, self.measured = SLOPE, False
        self.plain: deque[float] = deque(maxlen=15)  # seconds of passes without a draft
        self.fruitless = self.rest = 0
        self.waiting: deque[list] = deque(maxlen=WAITING)  # [tree, node reached, place of the next token, kind of match]
        self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if self.rest > 0:
            self.rest -= 1
            return DraftTree()
        began = state.clock.now()
        tree = self.inner.propose(state, budget)
        took = state.clock.now() - began
        kept = self.let_through(tree, state) if len(tree) else tree
        self.fruitless = 0 if len(kept) else self.fruitless + 1
        if self.fruitless > PATIENCE and self.plain and took > CHEAP * median(self.plain):
            self.rest = min(LONGEST, 2 ** (self.fruitless - PATIENCE))
        return kept

    def let_through(self, tree: DraftTree, state: State) -> DraftTree:
        """The part of the tree that is expected to pay."""
        kind = min(self.inner.matched, len(FIRST) - 1)
        self.waiting.append([tree, -1, len(state.tokens), kind])
        # a price that was never measured is worth one round that may not pay
        count = self.worth(tree, kind) if self.measured or len(self.plain) < 3 else len(tree)
        state.note("gate", matched=self.inner.matched, found=len(tree), kept=count, first=round(self.first[kind].value, 3),
                   next=round(self.next[kind].value, 3), row=round(self.slope, 4))
        return tree if count == len(tree) else tree.keep(range(count), looked=True)

    def worth(self, tree: DraftTree, kind: int) -> int:
        """How many of its nodes bring the most tokens for the time they take; 0 where none do."""
        begin, on = self.first[kind].value, self.next[kind].value
        best, found, deepest, hoped = 1.0, 0, 0, 0.0
        for count, depth in enumerate(tree.depths, 1):
            if depth > deepest:
                hoped, deepest = hoped + begin * on**deepest, depth
            rate = (1 + hoped) / (1 + self.caution * self.slope * count)
            if rate >= best:
                best, found = rate, count
        return found

    def observe(self, state: State, outcome: Outcome) -> None:
        self.learn_price(len(outcome.tree), outcome.seconds["verify"])
        for _ in range(len(self.waiting)):
            entry = self.waiting.popleft()
            if self.follow(entry, state.tokens):
                self.waiting.append(entry)
        self.inner.observe(state, outcome)

    def learn_price(self, nodes: int, seconds: float) -> None:
        if not nodes:
            self.plain.append(seconds)
            self.slope += 0.02 * (SLOPE - self.slope)  # a price that keeps the gate shut is doubted, or it would never be tried again
        elif self.plain:
            usual = median(self.plain)
            row = (seconds / usual - 1) / nodes if usual > 0 else 0.0
            self.slope += (0.2 if self.measured else 1.0) * (min(STEEPEST, max(0.0, row)) - self.slope)
            self.measured = True

    def follow(self, entry: list, tokens: list[int]) -> bool:
        """Walk a draft along what was written since; whether its end is still open."""
        tree, node, at, kind = entry
        while at < len(tokens):
            children = tree.children(node)
            if not children:
                return False
            hit = next((c for c in children if tree.tokens[c] == tokens[at]), None)
            (self.first if node < 0 else self.next)[kind].learn(hit is not None)
            if hit is None:
                return False
            node, at = hit, at + 1
        entry[1:3] = node, at
        return True


def gated(inner: Drafter, caution: float) -> Drafter:
    """The drafter behind a gate, or as it is where caution is 0."""
    return Gate(inner, caution) if caution > 0 else inner


CAUTION = dict(name="caution", default=1.0, low=0.0, high=4.0,
               help="how much of its cost a draft must be expected to bring back; 0 drafts whenever something is found, as the paper does")
