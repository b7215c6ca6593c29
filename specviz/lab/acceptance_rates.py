"""Read the acceptance that a server reports, and estimate what it gives.

The time of a pass is a roofline: reading the weights, or arithmetic, whichever takes longer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from . import LabError

NUMBER = re.compile(r"\d*\.?\d+%?")
LINE = re.compile(r"per-position acceptance rate\W*([\d.,%\s]+)", re.IGNORECASE)
MOST = 32  # places of a draft
MOST_TEXT = 4000


def read_rates(text: str) -> list[float]:
    """Return the share of rounds in which the first, the second, ... draft token was accepted. text: numbers,
    or a log with vLLM's line "Per-position acceptance rate: ..." (the last one counts). Raises LabError."""
    lines = LINE.findall(text[:MOST_TEXT])
    found = NUMBER.findall(lines[-1] if lines else text[:MOST_TEXT])
    rates = [float(one.rstrip("%")) / (100 if one.endswith("%") else 1) for one in found]
    falling = all(after <= before + 1e-9 for before, after in zip(rates, rates[1:]))
    if not 1 <= len(rates) <= MOST or not all(0 <= rate <= 1 for rate in rates) or not falling:
        raise LabError(
            f"Give 1 to {MOST} acceptance rates from 0 to 1, by place of the draft: none is above the one before it.",
            "recommend.rates",
        )
    return rates


def estimate(
    rates: Sequence[float], users: int, knee: float | None, draft: float, experts: Sequence[float]
) -> dict[str, Any]:
    """Estimate the speed-up of each draft length. users: requests in a pass; knee: tokens of a pass from which
    arithmetic takes longer than reading the weights, None if unknown; draft: the time of a draft step as a
    share of a plain pass; experts: how many times as long reading takes with 1, 2, ... draft tokens.

    Return {speedups, tokens: tokens per pass, best: the draft length with the highest speed-up, 0 if none is
    above 1}."""
    tokens, speedups = [], []
    plain = _pass(users, 1.0, knee)
    for length in range(1, len(rates) + 1):
        tokens.append(1 + sum(rates[:length]))
        time = _pass(users * (length + 1), experts[length - 1], knee) / plain + length * draft
        speedups.append(round(tokens[-1] / time, 3))
    best = max(range(len(speedups)), key=speedups.__getitem__)
    return {
        "tokens": [round(one, 3) for one in tokens],
        "speedups": speedups,
        "best": best + 1 if speedups[best] > 1 else 0,
    }


def _pass(rows: int, reading: float, knee: float | None) -> float:
    """Return the time of a pass over so many tokens, in times of reading the weights once."""
    return max(reading, rows / knee) if knee else reading
