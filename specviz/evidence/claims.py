"""Try the claims of papers (core/claim.py): each method beside its own baseline, on the same prompts and
seeds, in turns.

A claim is tried in pairs of runs until the confidence interval of the mean difference excludes zero or the
pairs are used up. The interval is read at fixed numbers of pairs (LOOKS) and is widened for the number of
readings (Bonferroni), so that a claim without effect is called shown or opposite with a probability of at
most LEVEL. All quantities are counts, so other work on the machine does not change them. Every finished
pair is one line of the ledger; the same command continues."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING, Any

from ..core import Method, Sampling
from ..core.claim import QUANTITIES, Claim
from ..indexes.earlier_answers import Memory
from ..methods import catalogue
from ..run.request import SessionError
from ..run.result import Result, RunFailed
from ..run.session import Session
from ..trace.metrics import Totals
from .prompt_suites import Item, read_suites, select_items

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

LEVEL = 0.05  # probability that a claim without effect is called shown or opposite
LOOKS = (8, 16, 32)  # numbers of pairs after which the interval is read
SHOWN = "shown"
NOT_SHOWN = "not shown at this size"
OPPOSITE = "opposite"
OPEN = "open"
CANNOT = "cannot be tried here"
COUNTED: dict[str, Callable[[Totals, dict[str, Any]], float]] = {  # by quantity; of a run's totals and knobs
    "accepted_length": lambda totals, knobs: totals.tokens / max(1, totals.rounds),
    "kept_share": lambda totals, knobs: totals.accepted / max(1, totals.drafted),
    "discarded": lambda totals, knobs: (totals.drafted - totals.accepted) / max(1, totals.tokens),
    "layers_read": lambda totals, knobs: (
        (totals.rounds + float(knobs.get("share", 0.0)) * totals.drafted) / max(1, totals.tokens)
    ),
}


@dataclass(frozen=True)
class Pair:
    """One pair of runs. claim: its identifier; number: of the pair; prompt: of the suite; ours, baseline:
    the quantity."""

    claim: str
    number: int
    target: str
    prompt: int
    seed: int
    ours: float
    baseline: float
    when: str


@dataclass(frozen=True)
class Outcome:
    """What became of a claim. low, high: interval of the mean difference (method minus baseline), None
    without pairs; p: its p-value; why: the reason that it cannot be tried."""

    verdict: str
    pairs: int = 0
    ours: float | None = None
    baseline: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    why: str = ""


def listed(only: Sequence[str] = ()) -> dict[str, tuple[Method, Claim]]:
    """Return the claims of the catalogue's methods (of those named, if any) by identifier, "KEY/NUMBER"."""
    return {
        f"{key}/{number}": (method, claim)
        for key, method in catalogue().items()
        if not only or key in only
        for number, claim in enumerate(method.claims, 1)
    }


def try_claims(
    loaded: Loaded, ledger: Path, only: Sequence[str] = (), stop: Callable[[], bool] = lambda: False
) -> Iterator[tuple[str, Outcome]]:
    """Run the pairs that the ledger does not hold yet, and append them to it. Yield each claim's identifier
    and outcome whenever it has changed; one pair of each open claim in turn. stop: asked before each
    pair."""
    found = read_ledger(ledger, loaded.name)
    waiting = dict(listed(only))
    for name, (method, claim) in list(waiting.items()):
        why = missing(loaded, method, claim)
        if why:
            del waiting[name]
            yield name, Outcome(CANNOT, why=why)
    while waiting and not stop():
        for name, (method, claim) in list(waiting.items()):
            pairs = found.setdefault(name, [])
            if outcome(claim, pairs).verdict != OPEN:
                yield name, outcome(claim, pairs)
                del waiting[name]
                continue
            if stop():
                break
            try:
                pairs.append(measure(loaded, name, method, claim, len(pairs)))
            except (SessionError, RunFailed) as error:
                del waiting[name]
                yield name, Outcome(CANNOT, why=str(error))
                continue
            with ledger.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(pairs[-1])) + "\n")
            yield name, outcome(claim, pairs)


def missing(loaded: Loaded, method: Method, claim: Claim) -> str:
    """Return why a claim cannot be tried on a target; empty if it can."""
    for one in (method, catalogue()[claim.baseline]):
        reason = loaded.unsupported_reason(one)
        if reason:
            return reason
    return ""


def measure(loaded: Loaded, name: str, method: Method, claim: Claim, number: int) -> Pair:
    """Run pair ``number`` of a claim: method and baseline on the same prompt and seed, the one or the other
    first in turn. Raises SessionError and RunFailed."""
    items = select_items(read_suites([None])[0], claim.tasks)
    item = items[number % len(items)]
    others = [items[(number + i) % len(items)] for i in range(1, claim.requests)]
    sides = [(method, claim.knobs), (catalogue()[claim.baseline], claim.baseline_knobs)]
    values: dict[int, float] = {}
    for side in (0, 1) if number % 2 == 0 else (1, 0):
        one, knobs = sides[side]
        values[side] = _count(loaded, one, knobs, claim, item, others, number)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Pair(name, number, loaded.name, item.number, number, values[0], values[1], now)


def _count(
    loaded: Loaded,
    method: Method,
    knobs: dict[str, Any],
    claim: Claim,
    item: Item,
    others: Sequence[Item],
    seed: int,
) -> float:
    memory = Memory() if claim.repeated else None
    result = Result()
    for _ in range(2 if claim.repeated else 1):
        session = Session(
            loaded,
            method,
            knobs,
            Sampling(claim.temperature, seed=seed),
            memory,
            deterministic=True,
            batch_prompts=[str(other.prompt) for other in others],
        )
        result = Result()
        for event in session.run(item.prompt, claim.tokens):
            result.take(event)
        if result.why:
            raise RunFailed(result.why)
    return COUNTED[claim.quantity](result.totals, method.read_knobs(knobs))


def outcome(claim: Claim, pairs: Sequence[Pair]) -> Outcome:
    """Return the outcome after these pairs, read at the last of LOOKS that they reach."""
    read = [look for look in LOOKS if look <= len(pairs)]
    if not read:
        return Outcome(OPEN, len(pairs))
    better = QUANTITIES[claim.quantity][1]
    last = Outcome(OPEN)
    for look in read:
        some = pairs[:look]
        low, high, p = interval([pair.ours - pair.baseline for pair in some], LEVEL / len(LOOKS))
        up, down = low > 0, high < 0
        verdict = SHOWN if (up if better else down) else OPPOSITE if up or down else OPEN
        if verdict == OPEN and look == LOOKS[-1]:
            verdict = NOT_SHOWN
        ours, baseline = fmean(pair.ours for pair in some), fmean(pair.baseline for pair in some)
        last = Outcome(verdict, look, ours, baseline, low, high, min(1.0, p * len(LOOKS)))
        if verdict != OPEN:
            break
    return last


def interval(differences: Sequence[float], level: float) -> tuple[float, float, float]:
    """Return (low, high, p-value) of the mean of paired differences by Student's t: the interval with
    confidence 1 - level, and the p-value of a mean of zero."""
    count, mean = len(differences), fmean(differences)
    error = stdev(differences) / math.sqrt(count)
    if error == 0:
        return mean, mean, 1.0 if mean == 0 else 0.0
    width = t_quantile(1 - level / 2, count - 1) * error
    low, high = 0.0, 0.5  # of the p-value's half, by bisection
    for _ in range(60):
        half = (low + high) / 2
        low, high = (half, high) if t_quantile(1 - half, count - 1) > abs(mean) / error else (low, half)
    return mean - width, mean + width, min(1.0, 2 * high)


def t_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution (Cornish and Fisher's expansion; within 1 % for seven
    degrees of freedom and shares up to 0.995)."""
    z = NormalDist().inv_cdf(min(share, 1 - 1e-15))
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def read_ledger(path: Path, target: str | None = None) -> dict[str, list[Pair]]:
    """Return the pairs of a ledger by claim, in order; of one target only, if it is named."""
    found: dict[str, list[Pair]] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
    for line in lines:
        pair = Pair(**json.loads(line))
        if target is None or pair.target == target:
            found.setdefault(pair.claim, []).append(pair)
    return found


def false_discoveries(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return {tried, shown, by_chance, rate}: how many claims were decided or given up, how many are shown,
    how many of them at most would be expected if none had an effect (half of LEVEL each), and the
    false-discovery rate that this bounds (Benjamini and Hochberg)."""
    tried = [one for one in outcomes if one.verdict in (SHOWN, OPPOSITE, NOT_SHOWN)]
    shown = sum(one.verdict == SHOWN for one in tried)
    by_chance = len(tried) * LEVEL / 2
    return {
        "tried": len(tried),
        "shown": shown,
        "by_chance": by_chance,
        "rate": min(1.0, by_chance / max(1, shown)),
    }


def page(outcomes: dict[str, Outcome], target: str, when: str, command: str) -> str:
    """Return docs/claims.md: one line for each claim of the catalogue."""
    rows = []
    for name, (method, claim) in listed().items():
        one = outcomes.get(name, Outcome(OPEN))
        quantity, better = QUANTITIES[claim.quantity]
        numbers = "" if one.low is None else f"{one.baseline:.3g} to {one.ours:.3g}"
        effect = "" if one.low is None else f"{one.low:+.3g} to {one.high:+.3g}"
        rows.append(
            f"| {method.title} | {claim.text} | {condition(claim)} | {claim.figure} ({claim.place}) | "
            f"{quantity}{'' if better else ', fewer is better'}: {numbers} | {effect} | {one.pairs or ''} | "
            f"{one.verdict}{': ' + one.why if one.why else ''} |"
        )
    rate = false_discoveries(outcomes[name] for name in listed() if name in outcomes)
    summary = TEXTS["summary"].format(
        target=target, when=when, command=command, level=LEVEL, looks=", ".join(map(str, LOOKS)), **rate
    )
    return "\n".join(
        [TEXTS["title"], "", summary, "", TEXTS["head"], "|---|---|---|---|---|---|---:|---|", *rows, ""]
    )


def condition(claim: Claim) -> str:
    """Return the condition under which a claim is tried, and its baseline."""
    knobs = [", ".join(f"{k}={v}" for k, v in some.items()) for some in (claim.knobs, claim.baseline_knobs)]
    words = [f"temperature {claim.temperature:g}", ", ".join(claim.tasks) or "all tasks"]
    words += [f"{claim.requests} requests at once"] if claim.requests > 1 else []
    words += ["request answered before"] if claim.repeated else []
    against = f"against {catalogue()[claim.baseline].title}" + (f" ({knobs[1]})" if knobs[1] else "")
    return "; ".join([*words, *([knobs[0]] if knobs[0] else []), against])


TEXTS = {
    "title": "# What each paper claims, and what happens here",
    "summary": "Each claim is tried on {target}, the method beside its own baseline on the same prompts and seeds, in turns, until "
    "the interval of the mean difference excludes zero (read after {looks} pairs, level {level:g} over all readings). {shown} of "
    "{tried} claims that were tried to the end are shown. If none of them had an effect, {by_chance:.2g} would be shown by chance; so "
    "at most {rate:.0%} of those shown are expected to be false. The quantities are counts and do not depend on the machine's "
    "speed. {when}; written by `{command}`.",
    "head": "| method | claim | condition | the paper | baseline to method | difference | pairs | verdict |",
}
