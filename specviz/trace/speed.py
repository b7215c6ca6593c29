"""One statistic for speeds: how much faster a lane wrote than another, with an interval that also holds on a
busy machine. The headline, the race, tables, exports, the notebook, ``/compare`` and the command line use it;
``assets/viewer/speed.js`` is the same in JavaScript, and tests/vectors/speed.json tests both.

A forward pass (or a draft) that took more than ``SLOW`` times the lane's median for the same number of tokens
was interrupted by other work. It is replaced by that median and counted. The interval comes from a bootstrap
over blocks of rounds, since neighbouring rounds are disturbed together, and is widened by ``AGAIN``, on a busy
machine by ``AGAIN_BUSY``; with repeats, it comes from the order statistics of the paired runs. No speed is
named where the interval is wider than a factor of ``WIDEST``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Any, NamedTuple

SLOW = 2.0  # times the median above which a pass was interrupted
PART = 0.1  # share of a median pass below which a difference of drafts is not looked at
WIDEST = 2.0  # ratio of an interval's ends above which no speed is named
BLOCK = 4  # consecutive rounds that are drawn together
DRAWS = 200  # bootstrap samples
TAIL = 0.025  # share of the samples beyond each end of the interval
AGAIN = 1.05  # factor by which another run of the same text may differ, unseen in the rounds of one run
AGAIN_BUSY = 1.15  # the same beside other work, which slows passes of several rows more than lone rows
FEWEST = 8  # rounds below which the medians of a disturbed run are disturbed themselves
CONFIDENCE = 0.95  # of an interval of paired runs
CLOSE = 1.05  # ratio of speeds below which there is no difference
SLACK = 1.15  # factor by which a speed-up may exceed the tokens per pass
ENOUGH = 4  # passes of each half, for a step to be more than chance
STEADY = 1.25  # ratio of the passes of two halves above which a machine changed its speed
BUSY = 0.05  # share of replaced passes above which a machine is called busy
FEW = 2  # replaced passes that are no sign of a busy machine


class TimedRound(NamedTuple):
    """The duration of a round. tokens: committed; passes, rows: of the target; nodes, depth: of the draft;
    verify, draft, rest: seconds."""

    tokens: int
    passes: int
    rows: int
    verify: float
    nodes: int
    depth: int
    draft: float
    rest: float


class RunTime(NamedTuple):
    """Tokens and seconds of a whole run, after replacing."""

    tokens: int
    seconds: float


class Steady(NamedTuple):
    """Rounds after replacing. seconds, verify, draft: of each round; replaced: passes and drafts that were replaced; of: how
    many there are."""

    tokens: int
    seconds: list[float]
    verify: list[float]
    draft: list[float]
    replaced: int
    of: int


class Speed(NamedTuple):
    """How many times as fast a lane was as another: value, and the ends of its interval; None where nothing
    was measured. replaced, of: passes and drafts of both lanes; named: whether the value may be shown; clear:
    the lane was faster beyond doubt."""

    value: float | None
    low: float | None
    high: float | None
    replaced: int
    of: int
    named: bool
    clear: bool


@dataclass(frozen=True)
class LaneTimes:
    """What was measured of one lane: the rounds of its run, and its repeats."""

    rounds: tuple[TimedRound, ...]
    repeats: tuple[RunTime, ...] = ()
    tokens_per_pass: float | None = None

    def runs(self) -> list[RunTime]:
        """Return the lane's own run and its repeats."""
        own = steady(self.rounds)
        total = sum(own.seconds)
        return ([RunTime(own.tokens, total)] if own.tokens and total > 0 else []) + list(self.repeats)

    @property
    def replaced(self) -> int:
        """Passes and drafts of the lane's own run that were replaced."""
        return steady(self.rounds).replaced

    def tokens_per_second(self) -> float | None:
        """Return the median speed of the runs; None where nothing was measured."""
        speeds = [run.tokens / run.seconds for run in self.runs()]
        return median(speeds) if speeds else None


def steady(rounds: Sequence[TimedRound]) -> Steady:
    """Replace interrupted passes and drafts by the lane's median for as many tokens."""
    verify, slow = _replace([r.verify for r in rounds], [(r.passes, r.rows) for r in rounds], 0.0)
    least = PART * median(verify) if verify else 0.0
    draft, late = _replace([r.draft for r in rounds], [(r.nodes, r.depth) for r in rounds], least)
    return Steady(
        sum(r.tokens for r in rounds),
        [v + d + r.rest for v, d, r in zip(verify, draft, rounds)],
        verify,
        draft,
        slow + late,
        sum(r.passes > 0 for r in rounds) + sum(r.nodes > 0 for r in rounds),
    )


def _replace(seconds: list[float], sizes: list[tuple[int, int]], least: float) -> tuple[list[float], int]:
    """Return the durations after replacing, and the number of those replaced."""
    groups: dict[tuple[int, int], list[float]] = {}
    for took, size in zip(seconds, sizes):
        groups.setdefault(size, []).append(took)
    usual = {size: median(group) for size, group in groups.items()}
    # a size of 0 is no pass of the target, or no draft: what took the time is not known
    slow = [
        s[0] > 0 and took > SLOW * usual[s] and took - usual[s] > least for took, s in zip(seconds, sizes)
    ]
    return [usual[s] if bad else took for took, s, bad in zip(seconds, sizes, slow)], sum(slow)


def speedup(plain: LaneTimes, ours: LaneTimes) -> Speed:
    """Return how many times as fast ``ours`` wrote as ``plain``, per token.

    With repeats the i-th runs of both lanes are a pair, and value and interval are those of the median of the
    pairs."""
    pairs = [
        (a.seconds / a.tokens) / (b.seconds / b.tokens)
        for a, b in zip(plain.runs(), ours.runs())
        if a.tokens and b.tokens and a.seconds > 0 and b.seconds > 0
    ]
    base, mine = steady(plain.rounds), steady(ours.rounds)
    replaced, of = base.replaced + mine.replaced, base.of + mine.of
    if not pairs:
        return Speed(None, None, None, replaced, of, False, False)
    if plain is ours:
        return Speed(1.0, 1.0, 1.0, base.replaced, base.of, True, False)
    value = median(pairs)
    low, high = median_interval(pairs)[:2] if len(pairs) > 1 else _bootstrap(base, mine)
    possible = ours.tokens_per_pass is None or value <= max(1.0, ours.tokens_per_pass) * SLACK
    named = low is not None and high is not None and high <= WIDEST * low and possible
    return Speed(
        value, low, high, replaced, of, named, bool(named and low is not None and low > 1 and value >= CLOSE)
    )


def step(rounds: Sequence[TimedRound]) -> float:
    """Return the largest ratio of the median passes of a lane's first and second half, among passes for as many
    tokens; 1.0 where no size has enough of them. A steady machine gives about 1."""
    groups: dict[tuple[int, int], list[float]] = {}
    for r in rounds:
        groups.setdefault((r.passes, r.rows), []).append(r.verify)
    most = 1.0
    for group in groups.values():
        half = len(group) // 2
        first, last = group[:half], group[-half:] if half else []
        if half >= ENOUGH and min(median(first), median(last)) > 0:
            ratio = median(last) / median(first)
            most = max(most, ratio, 1 / ratio)
    return most


def is_busy(replaced: int, of: int) -> bool:
    """Return whether so many passes were replaced that the machine is called busy."""
    return replaced > max(FEW, BUSY * of)


def _bootstrap(plain: Steady, ours: Steady) -> tuple[float | None, float | None]:
    """Return the ends of the interval of one pair of runs; None where a lane has too few rounds."""
    replaced, of = plain.replaced + ours.replaced, plain.of + ours.of
    if min(len(plain.seconds), len(ours.seconds)) < (FEWEST if replaced else BLOCK):
        return None, None
    again = AGAIN_BUSY if is_busy(replaced, of) else AGAIN
    draw = random_fractions(1)
    each = ours.tokens / plain.tokens
    totals = [(_resample(plain.seconds, draw), _resample(ours.seconds, draw)) for _ in range(DRAWS)]
    ratios = sorted(a / b * each for a, b in totals)
    cut = int(TAIL * DRAWS)
    return ratios[cut] / again, ratios[DRAWS - 1 - cut] * again


def _resample(seconds: list[float], draw: Callable[[], float]) -> float:
    """Return the sum of blocks of rounds drawn with replacement, scaled to as many rounds."""
    count = len(seconds)
    blocks = -(-count // BLOCK)
    total = 0.0
    for _ in range(blocks):
        first = int(draw() * count)
        for i in range(BLOCK):
            total += seconds[(first + i) % count]
    return total * count / (blocks * BLOCK)


def random_fractions(seed: int) -> Callable[[], float]:
    """Return a generator of fractions in [0, 1) that JavaScript can repeat to the last bit (mulberry32)."""
    state = seed

    def draw() -> float:
        nonlocal state
        state = (state + 0x6D2B79F5) & 0xFFFFFFFF
        x = ((state ^ (state >> 15)) * (state | 1)) & 0xFFFFFFFF
        x ^= (x + ((x ^ (x >> 7)) * (x | 61))) & 0xFFFFFFFF
        return ((x ^ (x >> 14)) & 0xFFFFFFFF) / 2**32

    return draw


def median_interval(values: Iterable[float]) -> tuple[float, float, float]:
    """Return (low, high, confidence) of the median: the narrowest pair of order statistics with at least
    CONFIDENCE, else smallest and largest value."""
    ordered = sorted(values)
    count = len(ordered)
    best = 0
    for k in range(1, (count + 1) // 2):
        if _covered(count, k) >= CONFIDENCE:
            best = k
    return ordered[best], ordered[count - 1 - best], _covered(count, best)


def _covered(count: int, k: int) -> float:
    """Return the probability that the median lies between the (k+1)-th smallest and the (k+1)-th largest of
    ``count`` values."""
    return 1 - 2 * sum(comb(count, i) for i in range(k + 1)) / 2**count


def lane_times(records: Iterable[dict[str, Any]], lane: int) -> LaneTimes:
    """Return what a trace's records say about the durations of a lane."""
    found: dict[int, dict[str, Any]] = {}
    whole: tuple[RunTime, ...] = ()  # the run itself, where its rounds have no times
    repeats: tuple[RunTime, ...] = ()
    for record in records:
        if record.get("lane") != lane:
            continue
        if record["type"] == "done":
            totals = record.get("totals", {})
            whole, repeats = _runs([totals]), _runs(totals.get("repeats", ()))
        if not isinstance(record.get("round"), int):
            continue
        at = found.setdefault(record["round"], {"passes": 0, "rows": 0, "nodes": 0, "depth": 0})
        if record["type"] == "draft":
            at["nodes"] = len(record["nodes"])
            at["depth"] = max((node["depth"] for node in record["nodes"]), default=0)
        elif record["type"] == "verify":
            at["passes"] += 1
            at["rows"] += record["n_in"]
        elif record["type"] == "commit":
            at["tokens"] = record["n_new"]
        elif record["type"] == "timing":
            at["times"] = record
    rounds = tuple(_round(at) for _, at in sorted(found.items()) if "tokens" in at and "times" in at)
    repeats = repeats if rounds else whole + repeats
    passes = sum(r.passes for r in rounds)
    return LaneTimes(rounds, repeats, sum(r.tokens for r in rounds) / passes if passes else None)


def _runs(totals: Iterable[dict[str, Any]]) -> tuple[RunTime, ...]:
    return tuple(
        RunTime(run["tokens"], run["seconds"]) for run in totals if run.get("tokens") and run["seconds"] > 0
    )


def _round(at: dict[str, Any]) -> TimedRound:
    times = at["times"]
    rest = (times[f"{part}_ns"] for part in ("judge", "cache", "other"))
    return TimedRound(
        at["tokens"],
        at["passes"],
        at["rows"],
        times["verify_ns"] / 1e9,
        at["nodes"],
        at["depth"],
        times["draft_ns"] / 1e9,
        sum(rest) / 1e9,
    )
