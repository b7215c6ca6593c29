"""Synthetic acceptance: the acceptance probability of each place of a draft, from a mean accepted length or
from the per-position rates that a serving engine reports.

Rates are unconditional, as vLLM and SGLang report them: rate i is the share of drafts whose first i + 1
tokens were all accepted. Here they become conditional: the probability that a place is accepted, given that
all places before it were.
"""

from __future__ import annotations

import re

from ...core.errors import InvalidUse

MOST_RATES = 16  # longest draft of the oracle
SLACK = 1e-9
HALVINGS = 50


def read_rates(text: str) -> tuple[float, ...]:
    """Return the conditional acceptance probability of each place, from a text with the unconditional rates
    of places 1, 2, ...: numbers from 0 to 1, separated by commas or spaces, none larger than the one before
    it. Percent signs are read, too. Raises InvalidUse (a ValueError) for any other text."""
    words = re.split(r"[\s,;]+", text.strip("[](){} \t\n"))
    try:
        rates = [float(word.rstrip("%")) / (100 if word.endswith("%") else 1) for word in words if word]
    except ValueError:
        raise InvalidUse(f"rates must be numbers from 0 to 1, not {text!r:.60}", "rates.numbers") from None
    if not 0 < len(rates) <= MOST_RATES or not all(0 <= rate <= 1 for rate in rates):
        raise InvalidUse(f"rates must be 1 to {MOST_RATES} numbers from 0 to 1", "rates.numbers")
    before = [1.0, *rates[:-1]]
    if any(rate > last + SLACK for rate, last in zip(rates, before)):
        raise InvalidUse(
            "a rate is larger than the one before it: they must count drafts accepted up to that place",
            "rates.order",
        )
    return tuple(min(1.0, rate / last) if last > 0 else 0.0 for rate, last in zip(rates, before))


def rates_of_length(length: float, gamma: int) -> tuple[float, ...]:
    """Return the constant acceptance probability a, once per place, with which drafts of ``gamma`` tokens
    yield ``length`` tokens per round on average: 1 + a + ... + a^gamma = length. A length outside of 1 to
    gamma + 1 gives the nearest possible one."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(gamma + 1)) < length else (low, middle)
    return (high if length >= gamma + 1 else low,) * gamma
