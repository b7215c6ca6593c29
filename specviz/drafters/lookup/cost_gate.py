"""Truncate lookup drafts to the part whose expected gain exceeds its verification cost.

The gate estimates two things. First, the acceptance probability of the next draft token, as a function of
the number of matching tokens before it (match plus accepted draft). Second, the extra cost of a forward
pass with a draft: one amount for the first token, a smaller one for each further token. Truncated tokens
are compared with the text generated later, so they also improve the estimate. A lookup that takes a
noticeable share of a pass and repeatedly finds nothing is called less often. Decisions depend on past
rounds and on the draft only, so the output stays exact. The gate is an addition of this project; the papers
always draft, which is ``caution`` 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import replace
from statistics import median
from typing import Protocol, cast

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target

AGREE = (0, 1, 2, 3, 4, 5, 7, 10, 14, 20)  # classes of the number of agreeing tokens
RIGHT = (0.15, 0.22, 0.5, 0.6, 0.68, 0.72, 0.8, 0.9, 0.95, 0.98)  # prior acceptance probability of each class
ELSEWHERE = 2  # tokens subtracted from a match in another text
TRUST = 3.0  # weight of the prior
FADE = 0.98  # decay per round
FIRST = 0.2  # prior extra cost of a draft, in passes
ROW = 0.05  # prior extra cost of each of its tokens, in passes
DOUBT = 0.02  # drift back to the prior per round without a draft
STEEPEST = 0.5  # maximum cost per token, in passes
SHORT = 8  # tokens requested at first
TRIED = 6  # size of the draft that first measures the cost
WAITING = 64  # drafts not yet compared with the generated text
CHEAP = 0.02  # share of a pass that a lookup may take
PATIENCE = 4  # failures before it is skipped
LONGEST = 15  # maximum rounds skipped


class SuccessRate:
    """An exponentially decayed success rate. guess: its prior value, with the weight of TRUST trials."""

    def __init__(self, guess: float):
        self.good, self.tried = guess * TRUST, TRUST

    def learn(self, ok: bool) -> None:
        """Add a trial."""
        self.good, self.tried = self.good * FADE + ok, self.tried * FADE + 1

    @property
    def value(self) -> float:
        """The rate, at most 0.995."""
        return min(0.995, self.good / self.tried)


class DraftCost:
    """Extra cost of a forward pass with n draft tokens, in units of a pass without any: first + n * row,
    fitted to recent measurements.

    The fit starts from two assumed points, and returns to them slowly while no draft is measured. Otherwise
    a high cost would suppress all drafts and never be measured again.
    """

    def __init__(self):
        self.plain: deque[float] = deque(maxlen=15)  # seconds of passes without a draft
        self.measured, self.sums = False, GUESSED
        self.fit()

    def learn(self, nodes: int, seconds: float) -> None:
        """Add a measurement: seconds of a forward pass with this many draft nodes."""
        if not nodes:
            self.plain.append(seconds)
            if self.measured:
                self.sums = tuple(s + DOUBT * (g - s) for s, g in zip(self.sums, GUESSED))
                self.fit()
        elif self.plain and (median_plain := self.median_plain) > 0:
            more = min(5 * FIRST + STEEPEST * nodes, max(0.0, seconds / median_plain - 1))
            self.sums = tuple(0.8 * s + x for s, x in zip(self.sums, _point(nodes, more)))
            self.measured = True
            self.fit()

    def fit(self) -> None:
        """Fit ``first`` and ``row``, both non-negative, by least squares."""
        w, x, xx, y, xy = self.sums
        apart = w * xx - x * x
        self.row = min(STEEPEST, max(0.0, (w * xy - x * y) / apart)) if apart > 1e-9 else ROW
        self.first = (y - self.row * x) / w
        if self.first < 0:
            self.first, self.row = 0.0, min(STEEPEST, xy / xx)

    @property
    def median_plain(self) -> float:
        """Median duration of a pass without a draft, in seconds."""
        return median(self.plain)


def _point(nodes: int, more: float) -> tuple[float, ...]:
    return 1.0, nodes, nodes * nodes, more, nodes * more


GUESSED = tuple(a + b for a, b in zip(_point(1, FIRST + ROW), _point(16, FIRST + 16 * ROW)))


class ReportsMatch(Protocol):
    """A drafter that reports ``matched``, the number of context tokens that matched before its last
    proposal."""

    matched: int


class CostGate(Drafter):
    """Drafter that cuts the drafts of a lookup drafter to the part whose expected gain exceeds its
    verification cost.

    inner: a drafter of chosen nodes, with parents and more probable nodes first, that reports ``matched``
    (ReportsMatch); caution: required ratio of expected gain to cost; 0 disables the gate."""

    def __init__(self, inner: Drafter, caution: float = 1.0):
        self.inner, self.caution = inner, caution
        self.hidden_states = inner.hidden_states
        self.needs = inner.needs
        self.restartable = inner.restartable

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.rates, self.draft_cost = [SuccessRate(x) for x in RIGHT], DraftCost()
        self.fruitless = self.rest = 0
        self.waiting: deque[list] = deque(
            maxlen=WAITING
        )  # [tree, node reached, position of the next token, agreeing tokens so far]
        self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if self.rest > 0:
            self.rest -= 1
            return DraftTree()
        began, noted = state.clock.now(), len(state.notes)
        tree = self.inner.propose(state, replace(budget, gamma=min(budget.gamma, SHORT)))
        if budget.gamma > SHORT and self.full_draft_pays(tree, state.tokens):
            del state.notes[noted:]
            tree = self.inner.propose(state, budget)
        took = state.costs.decided(state.clock.now() - began)
        kept = self.worthwhile_part(tree, state) if len(tree) else tree
        self.fruitless = 0 if len(kept) else self.fruitless + 1
        if (
            self.fruitless > PATIENCE
            and self.draft_cost.plain
            and took > CHEAP * self.draft_cost.median_plain
        ):
            self.rest = min(LONGEST, 2 ** (self.fruitless - PATIENCE))
            if not len(tree):
                self.note_decision(state, 0, 0, 0)
            state.notes[-1][1]["rest"] = self.rest  # marks that timing influenced the draft
        return kept

    def full_draft_pays(self, tree: DraftTree, tokens: list[int]) -> bool:
        """Return whether a draft of SHORT tokens is worth its cost up to the last one, so that a longer
        draft may pay, too."""
        return (
            len(tree) > 0
            and max(tree.depths) >= SHORT
            and self.best_count(tree, self.matching_tokens(tree, tokens)) == len(tree)
        )

    def worthwhile_part(self, tree: DraftTree, state: State) -> DraftTree:
        """Return the first nodes of the tree, as many as are expected to save more time than they cost."""
        agree = self.matching_tokens(tree, state.tokens)
        self.waiting.append([tree, -1, len(state.tokens), agree])
        count = self.best_count(tree, agree)
        if (
            not self.draft_cost.measured and len(self.draft_cost.plain) >= 3
        ):  # measure the cost once, even if this draft may not pay
            count = max(count, min(TRIED, len(tree)))
        self.note_decision(state, agree, len(tree), count)
        return tree if count == len(tree) else first_nodes(tree, count)

    def note_decision(self, state: State, agree: int, found: int, kept: int) -> None:
        """Attach the note "gate": number of matching tokens, nodes found by the lookup, nodes kept, and the
        estimates used."""
        first, following = self.success_rate(agree).value, self.success_rate(agree + 1).value
        state.note(
            "gate",
            matched=agree,
            found=found,
            kept=kept,
            first=round(first, 3),
            next=round(following, 3),
            row=round(self.draft_cost.row, 4),
            extra=round(self.draft_cost.first, 4),
        )

    def matching_tokens(self, tree: DraftTree, tokens: list[int]) -> int:
        """Return the number of tokens before the copied position that equal the last tokens of the context;
        for a copy from another text the number that the drafter reports, less ELSEWHERE."""
        position = tree.origin[0] if tree.origin else None
        if position is None:
            return cast(ReportsMatch, self.inner).matched
        if position.source != "context":
            return max(0, cast(ReportsMatch, self.inner).matched - ELSEWHERE)
        n = 0
        while n < AGREE[-1] and n < position.start and tokens[position.start - 1 - n] == tokens[-1 - n]:
            n += 1
        return n

    def success_rate(self, agree: int) -> SuccessRate:
        """Return the acceptance rate of a draft token that follows ``agree`` matching tokens."""
        return self.rates[bisect_right(AGREE, agree) - 1]

    def best_count(self, tree: DraftTree, agree: int) -> int:
        """Return the number of first nodes of the tree with the most expected tokens per second; 0 if no
        draft is worth its cost."""
        best = 1.0
        found = 0
        deepest = 0
        prob = 1.0
        hoped = 0.0
        for count, depth in enumerate(tree.depths, 1):
            if depth > deepest:
                prob *= self.success_rate(agree + deepest).value
                hoped, deepest = hoped + prob, depth
            pace = (1 + hoped) / (1 + self.caution * (self.draft_cost.first + self.draft_cost.row * count))
            if pace >= best:
                best, found = pace, count
            if (
                prob < best * self.caution * self.draft_cost.row
            ):  # probabilities only fall: no further token pays
                break
        return found

    def observe(self, state: State, outcome: Outcome) -> None:
        self.draft_cost.learn(len(outcome.tree), outcome.seconds["verify"])
        for _ in range(len(self.waiting)):
            entry = self.waiting.popleft()
            if self.compare_with_text(entry, state.tokens):
                self.waiting.append(entry)
        self.inner.observe(state, outcome)

    def compare_with_text(self, entry: list, tokens: list[int]) -> bool:
        """Compare a past draft with the text generated since, and learn from it. Return whether the
        comparison can continue when there is more text. entry: [tree, node reached, position of the next
        token, matching tokens so far], updated."""
        tree, node, at, agree = entry
        chain = tree.depths[-1] == len(tree)
        while at < len(tokens):
            children = (node + 1,) if chain else tree.children(node)
            if not children or chain and node + 1 == len(tree):
                return False
            hit = next((c for c in children if tree.tokens[c] == tokens[at]), None)
            self.success_rate(agree).learn(hit is not None)
            if hit is None:
                return False
            node = hit
            at = at + 1
            agree = agree + 1
        entry[1:] = node, at, agree
        return True


def first_nodes(tree: DraftTree, count: int) -> DraftTree:
    """Return the tree of the first ``count`` nodes of a tree of chosen nodes."""
    return (
        DraftTree(tree.tokens[:count], tree.parents[:count], (-1,) * count, origin=tree.origin[:count])
        if count
        else DraftTree()
    )


def with_cost_gate(inner: Drafter, caution: float) -> Drafter:
    """Return the drafter wrapped in a CostGate; the drafter itself if caution is 0."""
    return CostGate(inner, caution) if caution > 0 else inner
