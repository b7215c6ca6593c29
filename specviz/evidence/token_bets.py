"""Bets on single tokens of sampled answers, by the origin of the token (betting.py); powerful also if the distribution is flat.

- bonus: tokens after a fully accepted draft, against "always the top-1 token", a sharper or flatter distribution, one without
  temperature and filters, and one without end tokens or repetitions;
- accepted: whether a tested draft token was accepted, against sum(min(p, q)), for chains verified by rejection sampling;
- tested: each test of a drafted token x, against min(1, p(x) / q(x)), or p(x) for a chosen one; p is the residual distribution after
  the siblings that were rejected before it;
- correction: the token after a rejection, against the residual distribution after all of them;
- first: the first token of each answer, against the top-1 token, the token of the answer before to the same prompt, and the distribution
  without temperature and filters.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .betting import FLOOR, TestMartingale

DRAFTED = ("accepted", "correction")
APART = {"bonus": "always the top-1 token", "accepted": "every tested draft token accepted", "tested": "acceptance a quarter too frequent",
         "correction": "sampled from the target's distribution instead of the residual one",
         "first": "always the top-1 token"}  # main alternative of each kind
TILTS = (0.05, 0.2, 0.5)  # shares by which a rate is moved towards 1, or towards 0
BIAS, SURE = 1.25, 0.98  # factor of the acceptance probability in the main alternative of "tested", which reaches SURE at most
POWERS = {"much sharper": 2.0, "sharper": 4 / 3, "flatter": 3 / 4, "much flatter": 0.5}  # exponents of the distribution


class NodeTest(NamedTuple):
    """The test of a drafted token by rejection sampling. draft [vocab]: the distribution it was sampled from, None if it was chosen."""

    token: int
    draft: Tensor | None
    accepted: bool


@dataclass(frozen=True)
class Token:
    """A token of an answer, with the distributions and tests from which it resulted.

    probs [vocab]: the target's distribution at its position; raw [vocab]: the same without temperature and filters;
    before: the token before it; ends: end tokens; draft [vocab]: the distribution of the draft token of a chain that
    rejection sampling tested, else None; tests: all tests at its position, in order; first: whether it begins the
    answer; earlier: the first token of the previous answer to the same prompt, or None.
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

    def ratio(self, other: Tensor, null: Tensor) -> float:
        """Return the likelihood ratio of the token under another distribution [vocab]."""
        return float(other[self.token]) / max(float(null[self.token]), FLOOR)

    def top(self) -> tuple[float, float]:
        """Return the token's likelihood ratio under the alternative "always the top-1 token", and the ratio that it
        would have if the alternative were true."""
        best = int(self.probs.argmax())
        return (self.token == best) / float(self.probs[best]), 1 / float(self.probs[best])

    def avoids(self, tokens: frozenset[int]) -> float:
        """Return the token's likelihood ratio under a distribution in which some tokens are missing."""
        left = 1 - sum(float(self.probs[token]) for token in tokens if token >= 0)
        return (self.token not in tokens) / max(left, FLOOR)


def bet(apart: dict[str, TestMartingale], token: Token, rng: torch.Generator) -> None:
    """Test one token by its origin. rng: for the simulated alternatives."""
    if token.first:
        top, if_true = token.top()
        ratios = {"top-1": top, "unprocessed": token.ratio(token.raw, token.probs)}
        if token.earlier is not None:
            ratios["repeated"] = (token.token == token.earlier) / max(float(token.probs[token.earlier]), FLOOR)
        apart["first"].bet(ratios, if_true)
    if token.kind == "bonus":
        _bet_bonus(apart["bonus"], token)
        return
    if token.draft is not None and token.draft.shape == token.probs.shape and token.kind in DRAFTED:
        rate = float(torch.minimum(token.probs, token.draft.double().cpu()).sum())
        accepted = token.kind == "accepted"
        apart["accepted"].bet({"always": accepted / max(rate, FLOOR)}, 1 / max(rate, FLOOR), _rates(rate, accepted))
    residual = _bet_tests(apart["tested"], token, rng)
    if residual is not None and token.kind == "correction":
        _bet_correction(apart["correction"], token, residual, rng)


def _bet_bonus(on: TestMartingale, token: Token) -> None:
    top, if_true = token.top()
    other = {name: token.probs ** power for name, power in POWERS.items()}
    ratios = {name: token.ratio(probs / probs.sum(), token.probs) for name, probs in other.items()}
    on.bet({"top-1": top, "unprocessed": token.ratio(token.raw, token.probs), "no end": token.avoids(token.ends),
            "no repetition": token.avoids(frozenset({token.before})), **ratios}, if_true)


def _bet_tests(on: TestMartingale, token: Token, rng: torch.Generator) -> Tensor | None:
    """Bet on the tests at a position; return the residual distribution [vocab] after the last, None if nothing is left."""
    p = token.probs if token.tests else None
    for place, tested in enumerate(token.tests):
        q = None if tested.draft is None else tested.draft.double().cpu()
        if p is None or q is not None and (q.shape != p.shape or float(q[tested.token]) <= 0):
            return None
        rate = float(p[tested.token]) if q is None else min(1.0, float(p[tested.token]) / float(q[tested.token]))
        more = max(rate, min(SURE, BIAS * rate))
        would = float(torch.rand(1, generator=rng)) < more
        known = FLOOR < rate < SURE
        biased, if_true = (_rate_ratio(more, rate, hit) if known else 1.0 for hit in (tested.accepted, would))
        ratios = _rates(rate, tested.accepted) | {"biased": biased}
        later = {f"later sibling {name}": ratio for name, ratio in ratios.items()} if place else {}  # a mistake may be theirs alone
        on.bet({}, if_true, ratios | later, True)
        rest = (p - (torch.nn.functional.one_hot(torch.tensor(tested.token), len(p)) if q is None else q)).clamp(min=0)
        p = rest / rest.sum() if float(rest.sum()) > FLOOR else None
    return p


def _rates(rate: float, accepted: bool) -> dict[str, float]:
    """Return the likelihood ratios of rates that are moved towards 1 and towards 0."""
    up = {f"+{tilt}": _rate_ratio(rate + tilt * (1 - rate), rate, accepted) for tilt in TILTS}
    return up | {f"-{tilt}": _rate_ratio(rate * (1 - tilt), rate, accepted) for tilt in TILTS}


def _rate_ratio(other: float, null: float, accepted: bool) -> float:
    """Return the likelihood ratio of an acceptance probability; above 0 for one that is neither 0 nor 1 nor further from 1/2."""
    return max(other, FLOOR) / max(null, FLOOR) if accepted else max(1 - other, FLOOR) / max(1 - null, FLOOR)


def _bet_correction(on: TestMartingale, token: Token, residual: Tensor, rng: torch.Generator) -> None:
    other = int(torch.multinomial(token.probs, 1, generator=rng))
    top = float(residual.max())
    on.bet({"target": token.ratio(token.probs, residual), "top-1": (token.token == int(residual.argmax())) / top},
           float(token.probs[other]) / max(float(residual[other]), FLOOR))
