"""What a card says of its paper's claims: the sentence, the verdict with its interval, and the two lanes of
"Show it", which plays their recording if there is one.

The verdicts are those of assets/claims.json, which ``specviz claims --cards`` writes together with
docs/claims.md."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from .. import ASSETS
from ..core.claim import BY_DIFFERENCE, QUANTITIES, Claim
from ..core.method import Method
from ..engine.limits import BASELINE
from ..lab.recordings import claim_recording

CLAIMS = ASSETS / "claims.json"
SHOWN = "shown"
HERE = {  # what the recording of a claim is, by quantity
    "": "Here: the pair with the largest effect.",
    "equal_drafts": "Here: the pair with the largest effect; each lane draws drafts of its own, so it can show the opposite.",
}


@cache
def verdicts(path: Path = CLAIMS) -> dict[str, dict[str, Any]]:
    """Return {claim: what assets/claims.json says of it}; empty if the file is missing or damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["claims"]
        return {str(name): dict(one) for name, one in found.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def claims_of(card: Method, path: Path = CLAIMS) -> list[dict[str, Any]]:
    """Return the card's claims for the page: text, paper, verdict, figures in words, show, the choice of
    "Show it" (None where nothing was tried), recording, the name of its recording (None without one), and
    here, what that recording is."""
    rows: list[dict[str, Any]] = []
    for number, claim in enumerate(card.claims, 1):
        found = verdicts(path).get(f"{card.key}/{number}", {})
        rows.append(
            {
                "text": claim.text,
                "paper": f"{claim.figure} ({claim.place})" if claim.figure else "",
                "verdict": str(found.get("verdict", "open")),
                "figures": _figures(claim, found),
                "why": str(found.get("why") or (claim.why if found.get("verdict") != SHOWN else "")),
                "show": choice_of(card, claim, found) if "show" in found else None,
                "here": HERE.get(claim.quantity, HERE[""]),
                "recording": claim_recording(card.key, number) if "show" in found else None,
            }
        )
    return rows


def _figures(claim: Claim, found: dict[str, Any]) -> str:
    if "low" not in found:
        return ""
    ours, baseline, low, high = (_number(found[name]) for name in ("ours", "baseline", "low", "high"))
    quantity, better = QUANTITIES[claim.quantity]
    beside = f"{claim.factor:g} times the baseline's" if claim.factor != 1 else "the baseline's"
    fewer = "" if better else ", fewer is better"
    effect = (
        f"pair by pair the difference from {beside} is {low} to {high}"
        if claim.quantity in BY_DIFFERENCE
        else f"pair by pair {low} to {high} times {beside}"
    )
    where = f" on {found['target']}" if "target" in found else ""
    return f"{quantity}{fewer}: {ours}, the baseline {baseline}; {effect} ({found['pairs']} pairs{where})"


def _number(value: float) -> str:
    """Return a figure with three digits, large ones without an exponent."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def choice_of(card: Method, claim: Claim, found: dict[str, Any]) -> dict[str, Any]:
    """Return the choice of the page's controls that repeats the pair with the largest effect."""
    best = found["show"]
    lanes = [(claim.baseline, claim.baseline_knobs), (card.key, claim.knobs)]
    predicted = {"predicted": best["prompt"]} if claim.given == "prompt" else {}
    return {
        "prompt": best["prompt"],
        "methods": [{"method": key, "knobs": knobs} for key, knobs in lanes if key != BASELINE],
        "knobs": {},
        "temperature": claim.temperature,
        "seed": best["seed"],
        "length": claim.tokens,
        "prompts": claim.requests,
        "target": str(found.get("target", "")),
        **predicted,
    }
