"""Bets on single tokens of sampled answers, by the origin of the token (betting.py); powerful also if the
distribution is flat.

- bonus: tokens after a fully accepted draft, against "always the top-1 token", a sharper or flatter distribution, one without
  temperature and filters, and one without end tokens or repetitions;
- accepted: whether a tested draft token was accepted, against sum(min(p, q)), for chains verified by rejection sampling;
- tested: each test of a drafted token x, against min(1, p(x) / q(x)), or p(x) for a chosen one; p is the residual distribution after
  the siblings that were rejected before it. Mistakes may be limited to later siblings, to a depth in the
  round, or to a part of the answer: each is an alternative of its own;
- ranked: tests of later siblings only, against the rule of the other kind of siblings (independent or without replacement);
- correction: the token after a rejection, against the residual distribution after all of them;
- copied: whether the token is one of the draft's, in rounds whose draft was chosen and not sampled, against a second chance for a
  rejected one; also where the verifier reports no decisions;
- second, unprocessed: bonus tokens, against "never the second most probable token", and against the distribution without the
  request's penalties, biases, bans and grammar;
- first: the first token of each answer, against the top-1 token, the first token of the previous answer to the same prompt, and the
  distribution without temperature and filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .betting import FLOOR, SPLIT, TestMartingale

DRAFTED = ("accepted", "correction")
APART = {
    "bonus": "always the top-1 token",
    "accepted": "every tested draft token accepted",
    "tested": "acceptance a quarter too frequent",
    "ranked": "independent siblings verified as drawn without replacement, or the reverse",
    "correction": "sampled from the target's distribution instead of the residual one",
    "first": "always the top-1 token",
    "second": "never the second most probable token",
    "copied": "a rejected draft token written by a second draw",
    "unprocessed": "the request's penalties, biases, bans and grammar missing",
}  # main alternative of each kind
TILTS = (0.05, 0.2, 0.5)  # shares by which a rate is moved towards 1, or towards 0
FACTORS = (0.9, 1.12)  # by which a rate is multiplied
BIAS = 1.25  # factor of the acceptance probability in the main alternative of "tested"
SURE = 0.98  # highest acceptance probability of an alternative
POWERS = {
    "much sharper": 2.0,
    "sharper": 4 / 3,
    "flatter": 3 / 4,
    "much flatter": 0.5,
}  # exponents of the distribution
SEVERE = 0.95  # share of the wealth that is bet on an alternative under which one token is impossible
TINY = 1e-12  # smallest ratio of these
DEEP = (2, 3, 4)  # tokens before it in the round, from which on a mistake may begin
LATE = 24  # tokens before it in the answer


class NodeTest(NamedTuple):
    """The test of a drafted token by rejection sampling. draft [vocab]: the distribution it was sampled
    from, None if it was chosen; accept, draw: the acceptance probability and the uniform number as the
    verifier reports them, or None; other [vocab]: for a later sibling, the draft distribution by the rule of
    the other kind of siblings."""

    token: int
    draft: Tensor | None
    accepted: bool
    accept: float | None = None
    draw: float | None = None
    other: Tensor | None = None


class TestedDistribution(NamedTuple):
    """What a drafted token is tested against. probs [vocab]: the distribution, after earlier rejections;
    value: the acceptance probability; mass: the probability that earlier rejections have left of the
    target's distribution."""

    probs: Tensor
    value: float
    mass: float


@dataclass(frozen=True)
class Token:
    """A token of an answer, with the distributions and tests from which it resulted.

    probs [vocab]: the target's distribution at its position; raw [vocab]: the same without temperature and
    filters; before: the token before it; ends: end tokens; draft [vocab]: the distribution of the draft
    token of a chain that rejection sampling tested, else None; tests: all tests at its position, in order;
    first: whether it begins the answer; earlier: the first token of the previous answer to the same prompt,
    or None; depth: number of tokens before it in its round; place: number of tokens before it in its
    answer; unprocessed [vocab]: the target's distribution without the request's logits processors, None if
    there are none; chosen: the draft tokens at its position, if all of the round's were chosen.
    """

    token: int
    kind: str
    probs: Tensor
    raw: Tensor
    before: int = -1
    ends: frozenset[int] = frozenset()
    draft: Tensor | None = None
    tests: tuple[NodeTest, ...] = ()
    first: bool = False
    earlier: int | None = None
    depth: int = 0
    place: int = 0
    unprocessed: Tensor | None = None
    chosen: frozenset[int] = frozenset()

    def stretches(self) -> dict[str, bool]:
        """Return {part of rounds or answers to which a mistake may be limited: whether the token lies in
        it}."""
        return {
            "": True,
            **{f"depth {depth}{SPLIT}": self.depth >= depth for depth in DEEP},
            f"late{SPLIT}": self.place >= LATE,
        }

    def ratio(self, other: Tensor, null: Tensor) -> float:
        """Return the likelihood ratio of the token under another distribution [vocab]."""
        return float(other[self.token]) / max(float(null[self.token]), FLOOR)

    def top(self) -> tuple[float, float]:
        """Return the token's likelihood ratio under the alternative "always the top-1 token", and the ratio
        that it would have if the alternative were true."""
        best = int(self.probs.argmax())
        return (self.token == best) / float(self.probs[best]), 1 / float(self.probs[best])

    def avoids(self, tokens: frozenset[int]) -> float:
        """Return the token's likelihood ratio under a distribution in which some tokens are missing."""
        left = 1 - sum(float(self.probs[token]) for token in tokens if token >= 0)
        return (self.token not in tokens) / max(left, FLOOR)


def bet(
    apart: dict[str, TestMartingale], token: Token, rng: torch.Generator
) -> tuple[list[TestedDistribution], TestedDistribution | None]:
    """Test one token by its origin (``apart``: a test for each origin); return its ``acceptance_rates``.
    rng: for the simulated alternatives."""
    if token.first:
        top, if_true = token.top()
        again = (
            1.0
            if token.earlier is None
            else (token.token == token.earlier) / max(float(token.probs[token.earlier]), FLOOR)
        )
        apart["first"].bet(
            {"top-1": top, "unprocessed": token.ratio(token.raw, token.probs), "repeated": again}, if_true
        )
    if token.chosen:
        _bet_copied(apart["copied"], token, rng)
    if token.kind == "bonus":
        _bet_bonus(apart["bonus"], token)
        _bet_second(apart["second"], token)
        if token.unprocessed is not None:
            _bet_unprocessed(apart["unprocessed"], token, token.unprocessed, rng)
        return [], None
    if token.draft is not None and token.draft.shape == token.probs.shape and token.kind in DRAFTED:
        rate = float(torch.minimum(token.probs, token.draft.double().cpu()).sum())
        accepted = token.kind == "accepted"
        ratios = _within(token.stretches(), _rates(rate, accepted))
        apart["accepted"].bet({"always": accepted / max(rate, FLOOR)}, 1 / max(rate, FLOOR), ratios)
    rates, residual = acceptance_rates(token)
    _bet_tests(apart["tested"], token, rates, rng)
    _bet_ranked(apart["ranked"], token, rates, rng)
    if residual is not None and token.kind == "correction":
        _bet_correction(apart["correction"], token, residual.probs, rng)
    return rates, residual


def _bet_bonus(on: TestMartingale, token: Token) -> None:
    top, if_true = token.top()
    other = {name: token.probs**power for name, power in POWERS.items()}
    bent = {name: max(token.ratio(probs / probs.sum(), token.probs), TINY) for name, probs in other.items()}
    ratios = {
        "top-1": top,
        "unprocessed": token.ratio(token.raw, token.probs),
        "no end": token.avoids(token.ends),
        "no repetition": token.avoids(frozenset({token.before})),
    }
    stretches = token.stretches()
    on.bet(_within(stretches, ratios), if_true, _within(stretches, bent))


def _bet_second(on: TestMartingale, token: Token) -> None:
    """Bet against a bonus token that never, or half as often, is the second most probable one; or the first
    or third."""
    order = token.probs.topk(min(3, len(token.probs))).indices.tolist()
    ratios = {f"never rank {rank + 1}": token.avoids(frozenset({best})) for rank, best in enumerate(order)}
    if_true = 1 / max(1 - float(token.probs[order[1]]), FLOOR) if len(order) > 1 else 1.0
    staked = {name: 1 - SEVERE + SEVERE * ratio for name, ratio in ratios.items()}
    for rank, best in enumerate(order):
        prob = min(float(token.probs[best]), SURE)
        rarer = 0.5 if token.token == best else (1 - prob / 2) / (1 - prob)
        staked[f"half of rank {rank + 1}"] = rarer
    on.bet({}, 1 - SEVERE + SEVERE * if_true, staked, True)


def _bet_copied(on: TestMartingale, token: Token, rng: torch.Generator) -> None:
    rate = min(SURE, max(FLOOR, sum(float(token.probs[one]) for one in token.chosen)))
    more = rate + (1 - rate) * rate
    hit, would = token.token in token.chosen, float(torch.rand(1, generator=rng)) < more
    ratios = {"second chance": _rate_ratio(more, rate, hit)} | _rates(rate, hit)
    on.bet({}, _rate_ratio(more, rate, would), ratios, True)


def _bet_unprocessed(on: TestMartingale, token: Token, other: Tensor, rng: torch.Generator) -> None:
    would = int(torch.multinomial(other, 1, generator=rng))
    ratio = token.ratio(other, token.probs)
    on.bet(
        {"unprocessed": ratio},
        1 - SEVERE + SEVERE * float(other[would]) / max(float(token.probs[would]), FLOOR),
        {"always unprocessed": 1 - SEVERE + SEVERE * ratio},
        True,
    )


def _within(stretches: dict[str, bool], ratios: dict[str, float]) -> dict[str, float]:
    """Return the likelihood ratios of mistakes that are limited to a stretch; 1 where the token lies
    outside."""
    return {
        f"{stretch}{name}": ratio if inside else 1.0
        for stretch, inside in stretches.items()
        for name, ratio in ratios.items()
    }


def acceptance_rates(token: Token) -> tuple[list[TestedDistribution], TestedDistribution | None]:
    """Return, for each test at a token's position, what rejection sampling compares there; and the residual
    distribution after the last one (with value 0), None if nothing is left. If a test cannot be recomputed,
    the list ends before it and the residual is None."""
    p = token.probs
    mass = 1.0
    rates = list[TestedDistribution]()
    for tested in token.tests:
        q = None if tested.draft is None else tested.draft.double().cpu()
        if q is not None and (q.shape != p.shape or float(q[tested.token]) <= 0):
            return rates, None
        accept = (
            float(p[tested.token]) if q is None else min(1.0, float(p[tested.token]) / float(q[tested.token]))
        )
        rates.append(TestedDistribution(p, accept, mass))
        rest = (
            p - (torch.nn.functional.one_hot(torch.tensor(tested.token), len(p)) if q is None else q)
        ).clamp(min=0)
        left = float(rest.sum())
        if left <= FLOOR:
            return rates, None
        p, mass = rest / left, mass * left
    return rates, TestedDistribution(p, 0.0, mass) if token.tests else None


def _bet_tests(
    on: TestMartingale, token: Token, rates: Sequence[TestedDistribution], rng: torch.Generator
) -> None:
    stretches = token.stretches()
    for place, (rate, tested) in enumerate(zip((one.value for one in rates), token.tests)):
        more = max(rate, min(SURE, BIAS * rate))
        would = float(torch.rand(1, generator=rng)) < more
        known = FLOOR < rate < SURE
        biased, if_true = (_rate_ratio(more, rate, hit) if known else 1.0 for hit in (tested.accepted, would))
        ratios = _rates(rate, tested.accepted) | {"biased": biased}
        ratios |= {
            f"*{factor}": _rate_ratio(min(SURE, factor * rate), rate, tested.accepted) if known else 1.0
            for factor in FACTORS
        }
        on.bet({}, if_true, _within(stretches | {f"later sibling{SPLIT}": place > 0}, ratios), True)


def _bet_ranked(
    on: TestMartingale, token: Token, rates: Sequence[TestedDistribution], rng: torch.Generator
) -> None:
    for rate, tested in zip(rates, token.tests):
        if tested.other is None or not FLOOR < rate.value < SURE:
            continue
        drafted = float(tested.other[tested.token])
        other = min(SURE, float(rate.probs[tested.token]) / drafted) if drafted > 0 else SURE
        would = float(torch.rand(1, generator=rng)) < other
        ratio, if_true = (_rate_ratio(other, rate.value, hit) for hit in (tested.accepted, would))
        on.bet({}, if_true, {"other rule": ratio}, True)


def _rates(rate: float, accepted: bool) -> dict[str, float]:
    """Return the likelihood ratios of rates that are moved towards 1 and towards 0."""
    up = {f"+{tilt}": _rate_ratio(rate + tilt * (1 - rate), rate, accepted) for tilt in TILTS}
    return up | {f"-{tilt}": _rate_ratio(rate * (1 - tilt), rate, accepted) for tilt in TILTS}


def _rate_ratio(other: float, null: float, accepted: bool) -> float:
    """Return the likelihood ratio of an acceptance probability; above 0 for one that is neither 0 nor 1 nor
    further from 1/2."""
    return max(other, FLOOR) / max(null, FLOOR) if accepted else max(1 - other, FLOOR) / max(1 - null, FLOOR)


def _bet_correction(on: TestMartingale, token: Token, residual: Tensor, rng: torch.Generator) -> None:
    other = int(torch.multinomial(token.probs, 1, generator=rng))
    draft = token.tests[-1].draft
    drafted = residual if draft is None else draft.double().cpu()
    top = float(residual.max())
    ratios = {
        "target": token.ratio(token.probs, residual),
        "top-1": (token.token == int(residual.argmax())) / top,
        "draft": token.ratio(drafted, residual),
    }
    on.bet(_within(token.stretches(), ratios), float(token.probs[other]) / max(float(residual[other]), FLOOR))
