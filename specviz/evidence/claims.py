"""Try the claims of papers (core/claim.py): each method beside its own baseline, on the same prompts and
seeds, in turns.

A claim is tried in pairs of runs until the confidence interval of the mean effect excludes no effect or the
pairs are used up. The effect is the ratio of method and baseline (the mean of its logarithm), or their
difference where a count may be 0. The interval is read at fixed numbers of pairs (LOOKS) and is widened for the number of
readings (Bonferroni), so that a claim without effect is called shown or opposite with a probability of at
most LEVEL. At temperature 0 a prompt is used once: a second pair of it would be the same. All quantities
are counts, so other work on the machine does not change them, and claims of the same baseline share its
runs. Every finished pair is one line of the ledger; the same command continues."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import yaml

from .. import ASSETS
from ..core import Method, Sampling
from ..core.claim import BY_DIFFERENCE, QUANTITIES, Claim
from ..indexes.earlier_answers import Memory
from ..methods import catalogue
from ..run.request import GenerationRequest, SessionError
from ..run.result import Result, RunFailed
from ..run.session import Session
from .claim_counts import COUNTED, WITHOUT_IT, Counts, drafts_in_one_pass, with_both_rules
from .ledger_lines import append_row, read_rows
from .prompt_suites import Item, read_suites, select_items

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

OPENS = b'{"claim": '  # start of every line of the ledger
LEVEL = 0.05  # probability that a claim without effect is called shown or opposite
LOOKS = (6, 16, 32)  # numbers of pairs after which the interval is read
IN_TURN = 12  # open claims whose pairs are run in turn; those with the fewest readings come first
SHOWN = "shown"
NOT_SHOWN = "not shown at this size"
OPPOSITE = "opposite"
OPEN = "open"
CANNOT = "cannot be tried here"
DECIDED = (SHOWN, OPPOSITE, NOT_SHOWN)
ENOUGH_TO_SEE = 16  # tokens of the shorter run of a pair that is shown
SUITES = (  # of prompts: the first, and the other one, on which verdicts are repeated
    (None, ASSETS / "prompts" / "copy.yaml"),
    (ASSETS / "prompts" / "claims.yaml",),
)
PICTURES = ASSETS / "prompts" / "claims_pictures.yaml"
TASKS = ("story", "edit", "chat", "math", "code", "prose")  # "all tasks"
TARGET_TASKS = {  # of targets that write something else
    "specviz-pictures": ("picture",),
    "specviz-scales": ("picture",),
    "specviz-vision": ("see",),
}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "description": {"type": "string", "maxLength": 80},
        "quantity": {"type": "integer"},
        "available": {"type": "boolean"},
    },
    "required": ["name", "description", "quantity", "available"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Pair:
    """One pair of runs. claim: its identifier; condition: hash of its condition; suite: index in SUITES;
    number: of the pair; prompt: of the suite; ours, baseline: the quantity; tokens: of the shorter run, 0 in
    rows that do not know them."""

    claim: str
    number: int
    target: str
    prompt: int
    seed: int
    ours: float
    baseline: float
    when: str
    condition: str = ""
    suite: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of a claim. low, high: interval of the mean effect (method over baseline, or method minus
    baseline for BY_DIFFERENCE), None without pairs; p: its p-value; why: the reason that it cannot be
    tried; target: where it was tried, if that is known."""

    verdict: str
    pairs: int = 0
    ours: float | None = None
    baseline: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    why: str = ""
    target: str = ""


def listed(only: Sequence[str] = ()) -> dict[str, tuple[Method, Claim]]:
    """Return the claims of the catalogue's methods (of those named, if any) by identifier, "KEY/NUMBER"."""
    return {
        f"{key}/{number}": (method, claim)
        for key, method in catalogue().items()
        if not only or key in only
        for number, claim in enumerate(method.claims, 1)
    }


def try_claims(
    open_target: Callable[[str], Loaded],
    target: str,
    ledger: Path,
    names: Sequence[str] = (),
    stop: Callable[[], bool] = lambda: False,
    suite: int = 0,
) -> Iterator[tuple[str, Outcome]]:
    """Run the pairs that the ledger does not hold yet, and append them to it. Yield each claim's identifier
    and outcome whenever it has changed; IN_TURN open claims in turn, one target after another.
    target: of the claims that name none; names: identifiers of claims (default: all); stop: asked before
    each pair; suite: index in SUITES."""
    groups: dict[str, dict[str, tuple[Method, Claim]]] = {}
    for name, one in listed().items():
        if not names or name in names:
            groups.setdefault(one[1].target or target, {})[name] = one
    for where in sorted(groups, key=lambda name: name == target):
        if not stop():
            yield from _try_on(open_target(where), ledger, groups[where], stop, suite)


def _try_on(
    loaded: Loaded,
    ledger: Path,
    waiting: dict[str, tuple[Method, Claim]],
    stop: Callable[[], bool],
    suite: int,
) -> Iterator[tuple[str, Outcome]]:
    found, waiting, runs = read_ledger(ledger, loaded.name, suite), dict(waiting), Runs(loaded)
    for name, (method, claim) in list(waiting.items()):
        why = missing(loaded, method, claim)
        if why:
            del waiting[name]
            yield name, Outcome(CANNOT, why=why)
    while waiting and not stop():
        for name in sorted(waiting, key=lambda name: _looks_reached(found.get(name, ())))[:IN_TURN]:
            method, claim = waiting[name]
            pairs = found.setdefault(name, [])
            if outcome(claim, pairs, suite).verdict == OPEN:
                if stop():
                    break
                try:
                    pairs.append(measure(runs, name, method, claim, len(pairs), suite))
                except (SessionError, RunFailed) as error:
                    del waiting[name]
                    yield name, Outcome(CANNOT, why=str(error))
                    continue
                append_row(ledger, asdict(pairs[-1]))
            one = outcome(claim, pairs, suite)
            if one.verdict != OPEN:
                del waiting[name]
            yield name, one


def _looks_reached(pairs: Sequence[Pair]) -> int:
    return sum(look <= len(pairs) for look in LOOKS)


def missing(loaded: Loaded, method: Method, claim: Claim) -> str:
    """Return why a claim cannot be tried on a target; empty if it can."""
    for one in (method, catalogue()[claim.baseline]):
        reason = loaded.unsupported_reason(one)
        if reason:
            return reason
    return ""


def condition_hash(claim: Claim) -> str:
    """Return a hash of everything that decides what is run; pairs of another condition are not used."""
    same = asdict(replace(claim, text="", figure="", place="", why="", factor=1.0))
    return sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:8]


@lru_cache(maxsize=64)
def prompts(tasks: tuple[str, ...], target: str, suite: int) -> list[Item]:
    """Return the prompts of these tasks, one of each task in turn; all of TASKS, or of a target's own, if
    none is named."""
    items = read_suites(SUITES[0])[0] if suite == 0 else []
    items += [replace(item, number=1000 + item.number) for item in read_suites(SUITES[1])[0]]
    if suite == 0:  # the second file has the first suite's prompts for targets that paint or see
        names = {item.task for item in items if item.number < 1000}
        items = [item for item in items if item.number < 1000 or item.task not in names]
    wanted = tasks or TARGET_TASKS.get(target, TASKS)
    if target in TARGET_TASKS and suite:
        wanted = tuple(f"{task} again" for task in wanted)
    by_task = [select_items(items, (task,)) for task in wanted]
    return [item for row in zip_longest(*by_task) for item in row if item is not None]


def measure(runs: Runs, name: str, method: Method, claim: Claim, number: int, suite: int = 0) -> Pair:
    """Run pair ``number`` of a claim: method and baseline on the same prompt and seed, the one or the other
    first in turn. Raises SessionError and RunFailed."""
    items = prompts(claim.tasks, claim.target, suite)
    seed = number + 1000 * suite
    ask = Asked(claim, [items[(number + i) % len(items)] for i in range(claim.requests)], seed)
    if claim.quantity in WITHOUT_IT:
        counts = runs.counts(method, claim.knobs, ask, claim.quantity == "equal_drafts")
        ours, baseline = (by[claim.quantity](counts, claim) for by in (COUNTED, WITHOUT_IT))
        tokens = counts.totals.tokens
    else:
        sides = [(method, claim.knobs), (catalogue()[claim.baseline], claim.baseline_knobs)]
        order = (0, 1) if number % 2 == 0 else (1, 0)
        counted = {side: runs.counts(*sides[side], ask) for side in order}
        ours, baseline = (COUNTED[claim.quantity](counted[side], claim) for side in (0, 1))
        tokens = min(one.totals.tokens for one in counted.values())
    now = datetime.now(UTC).isoformat(timespec="seconds")
    prompt, hashed = ask.items[0].number, condition_hash(claim)
    return Pair(name, number, runs.loaded.name, prompt, seed, ours, baseline, now, hashed, suite, tokens)


@dataclass(frozen=True)
class Asked:
    """What both sides of a pair are asked. items: the prompt, and those beside it in a batch."""

    claim: Claim
    items: list[Item]
    seed: int

    @property
    def key(self) -> tuple[Any, ...]:
        """All that makes two runs of a method the same."""
        claim, numbers = self.claim, tuple(item.number for item in self.items)
        return numbers, self.seed, claim.temperature, claim.repeated, claim.given, claim.tokens

    def request(self) -> GenerationRequest:
        """Return the request's parameters."""
        claim, image = self.claim, None
        if claim.target == "specviz-vision":
            pictures: list[str] = yaml.safe_load(PICTURES.read_text(encoding="utf-8"))
            image = pictures[self.seed % len(pictures)]
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
        return GenerationRequest(
            temperature=claim.temperature,
            seed=self.seed,
            response_format=schema if claim.given == "schema" else None,
            image=image,
        )


class Runs:
    """Runs of sessions on loaded models; the last KEPT counts are kept for other claims with the same
    runs."""

    KEPT = 1000

    def __init__(self, loaded: Loaded):
        self.loaded = loaded
        self.kept: dict[tuple[Any, ...], Counts] = {}

    def counts(self, method: Method, knobs: dict[str, Any], ask: Asked, both: bool = False) -> Counts:
        """Return the counts of a run. both: drafts are judged by both rules. Raises SessionError and
        RunFailed."""
        key = (method.key, tuple(sorted(method.read_knobs(knobs).items())), both, *ask.key)
        if key not in self.kept:
            if len(self.kept) >= self.KEPT:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = self._run(method, knobs, ask, both)
        return self.kept[key]

    def _run(self, method: Method, knobs: dict[str, Any], ask: Asked, both: bool) -> Counts:
        claim, request = ask.claim, ask.request()
        memory = Memory() if claim.repeated else None
        counts = Counts()
        for _ in range(2 if claim.repeated else 1):
            counts, result = Counts(drafts_in_one_pass(method)), Result()
            session = Session(
                self.loaded,
                with_both_rules(method, counts) if both else method,
                knobs,
                Sampling(request.temperature, seed=request.seed),
                memory,
                deterministic=True,
                predicted=str(ask.items[0].prompt) if claim.given == "prompt" else "",
                batch_prompts=[str(other.prompt) for other in ask.items[1:]],
                request=request,
            )
            for event in session.run(ask.items[0].prompt, claim.tokens):
                counts.take(event)
                result.take(event)
            if result.why:
                raise RunFailed(result.why)
        return counts


def looks(claim: Claim, suite: int = 0) -> list[int]:
    """Return the numbers of pairs after which a claim's interval is read. At temperature 0 there are no more
    pairs than prompts."""
    most = LOOKS[-1] if claim.temperature > 0 else len(prompts(claim.tasks, claim.target, suite))
    return [look for look in LOOKS if look < most] + [min(most, LOOKS[-1])]


def outcome(claim: Claim, pairs: Sequence[Pair], suite: int = 0) -> Outcome:
    """Return the outcome after these pairs, read at the last of ``looks`` that they reach."""
    all_looks, better = looks(claim, suite), QUANTITIES[claim.quantity][1]
    last = Outcome(OPEN, len(pairs))
    for look in all_looks:
        if look > len(pairs):
            break
        some = pairs[:look]
        effects = [effect(claim, pair) for pair in some]
        low, high, p = interval(effects, LEVEL / len(LOOKS))
        up, down = low > 0, high < 0
        if claim.quantity not in BY_DIFFERENCE:
            low, high = math.exp(low), math.exp(high)
        verdict = SHOWN if (up if better else down) else OPPOSITE if up or down else OPEN
        if verdict == OPEN and look == all_looks[-1]:
            verdict = NOT_SHOWN
        ours, baseline = fmean(pair.ours for pair in some), fmean(pair.baseline for pair in some)
        last = Outcome(verdict, look, ours, baseline, low, high, min(1.0, p * len(LOOKS)))
        if verdict != OPEN:
            break
    return last


def effect(claim: Claim, pair: Pair) -> float:
    """Return a pair's effect: the logarithm of the ratio of method and baseline, or their difference."""
    if claim.quantity in BY_DIFFERENCE:
        return pair.ours - claim.factor * pair.baseline
    return math.log(pair.ours / (claim.factor * pair.baseline))


def interval(differences: Sequence[float], level: float) -> tuple[float, float, float]:
    """Return (low, high, p-value) of the mean of paired differences by Student's t: the interval with
    confidence 1 - level, and the p-value of a mean of zero."""
    count, mean = len(differences), fmean(differences)
    error = stdev(differences) / math.sqrt(count)
    if error == 0:
        return mean, mean, 1.0 if mean == 0 else 0.0
    width = t_quantile(1 - level / 2, count - 1) * error
    return mean - width, mean + width, 2 * (1 - _t_share(abs(mean) / error, count - 1))


def t_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution with an integer number of degrees of freedom, by
    bisection, for shares from a half on."""
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_share(middle, freedom) < share else (low, middle)
    return low


def _t_share(t: float, freedom: int) -> float:
    """Return the probability of at most t >= 0 (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 0.5 + inside / 2


def read_ledger(path: Path, target: str | None = None, suite: int = 0) -> dict[str, list[Pair]]:
    """Return the pairs of a ledger by claim, in order, as far as their condition is the claim's own; of one
    target only, if it is named. Raises SessionError for a file that is not a ledger."""
    found: dict[str, list[Pair]] = {}
    hashes = {name: condition_hash(claim) for name, (_, claim) in listed().items()}

    def take(row: dict[str, Any]) -> None:
        pair = Pair(**row)
        here = target is None or pair.target == target
        if here and pair.suite == suite and pair.condition == hashes.get(pair.claim):
            found.setdefault(pair.claim, []).append(pair)

    read_rows(path, path.read_bytes() if path.exists() else b"", OPENS, take)
    return found


def outcomes(path: Path, target: str, suite: int = 0) -> dict[str, Outcome]:
    """Return the outcomes of a ledger's pairs by claim: on the claim's own target or on this one; where it
    is not decided there, on another target that decides it."""
    found: dict[str, Outcome] = {}
    whole = read_ledger(path, None, suite)
    for name, (_, claim) in listed().items():
        wanted, some = claim.target or target, whole.get(name, [])
        names = sorted({pair.target for pair in some}, key=lambda one: (one != wanted, one))
        tried = [
            replace(outcome(claim, [pair for pair in some if pair.target == one], suite), target=one)
            for one in names
        ]
        if tried:
            found[name] = next((one for one in tried if one.verdict in DECIDED), tried[0])
    return found


def drawn(found: dict[str, Outcome], target: str, count: int, seed: int) -> list[str]:
    """Return ``count`` of the claims that were decided on this target or on their own, drawn at random with
    this seed."""
    decided = sorted(
        name
        for name, one in found.items()
        if one.verdict in DECIDED and one.target == (listed()[name][1].target or target)
    )
    return random.Random(seed).sample(decided, min(count, len(decided)))


def repeated(path: Path, target: str, found: dict[str, Outcome]) -> list[tuple[str, str, str]]:
    """Return (claim, verdict, verdict on other prompts and seeds) of the claims that were repeated, each on
    one target."""
    again = outcomes(path, target, 1)
    return [
        (name, found[name].verdict, one.verdict)
        for name, one in again.items()
        if one.verdict in DECIDED and name in found and found[name].target == one.target
    ]


def largest(claim: Claim, pairs: Sequence[Pair]) -> Pair:
    """Return the pair with the largest effect in the claim's direction, if there is one among those with enough
    tokens to look at."""
    sign = 1 if QUANTITIES[claim.quantity][1] else -1
    long = [pair for pair in pairs if pair.tokens == 0 or pair.tokens >= ENOUGH_TO_SEE]
    return max(long or pairs, key=lambda pair: sign * effect(claim, pair))


def cards(found: dict[str, Outcome], path: Path, target: str, when: str) -> dict[str, Any]:
    """Return what the page's cards say of each claim: verdict, figures and interval, and the prompt and
    seed of the pair with the largest effect."""
    shown: dict[str, Any] = {}
    for name, (_, claim) in listed().items():
        one = found.get(name, Outcome(OPEN))
        where = one.target or claim.target or target
        card: dict[str, Any] = {"verdict": one.verdict, "pairs": one.pairs, "why": one.why}
        card |= {"target": where} if where != target else {}
        if one.low is not None:
            figures = {"ours": one.ours, "baseline": one.baseline, "low": one.low, "high": one.high}
            card |= {key: round(float(value or 0), 4) for key, value in figures.items()}
            best = largest(claim, read_ledger(path, where)[name])
            prompt = next(
                item.prompt for item in prompts(claim.tasks, claim.target, 0) if item.number == best.prompt
            )
            card["show"] = {"prompt": prompt, "seed": best.seed}
        shown[name] = card
    return {"when": when, "target": target, "claims": shown}


def false_discoveries(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return {tried, open, shown, by_chance, rate}: how many claims were tried to the end, how many were read
    and are open, how many are shown, how many of all these at most would be expected to be shown if none
    had an effect (half of LEVEL each), and the false-discovery rate that this bounds (Benjamini and
    Hochberg)."""
    some = list(outcomes)
    tried = [one for one in some if one.verdict in DECIDED]
    still_open = sum(one.verdict == OPEN and one.p is not None for one in some)
    shown = sum(one.verdict == SHOWN for one in tried)
    by_chance = (len(tried) + still_open) * LEVEL / 2
    return {
        "tried": len(tried),
        "open": still_open,
        "shown": shown,
        "by_chance": by_chance,
        "rate": min(1.0, by_chance / max(1, shown)),
    }


def page(
    found: dict[str, Outcome],
    target: str,
    when: str,
    command: str,
    again: Sequence[tuple[str, str, str]] = (),
) -> str:
    """Return docs/claims.md: one line for each claim of the catalogue. again: claims that were repeated."""
    rows: list[str] = []
    for name, (method, claim) in listed().items():
        one = found.get(name, Outcome(OPEN))
        quantity, better = QUANTITIES[claim.quantity]
        numbers = "" if one.low is None else f": {one.baseline:.3g} to {one.ours:.3g}"
        interval_words = "" if one.low is None else effect_words(claim, one.low, one.high or 0.0)
        why = one.why or (claim.why if one.verdict in (OPPOSITE, NOT_SHOWN) else "")
        rows.append(
            f"| {method.title} | {claim.text} | {condition(claim)}{_elsewhere(claim, one, target)} | "
            f"{in_paper(claim)} | "
            f"{quantity}{'' if better else ', fewer is better'}{numbers} | {interval_words} | {one.pairs or ''} | "
            f"{one.verdict}{': ' + why if why else ''} |"
        )
    counts = {verdict: sum(one.verdict == verdict for one in found.values()) for verdict in DECIDED}
    rate = false_discoveries(found.values())
    summary = TEXTS["summary"].format(
        target=target,
        level=LEVEL,
        looks=", ".join(map(str, LOOKS)),
        **rate,
        all=len(rows),
        opposite=counts[OPPOSITE],
        not_shown=counts[NOT_SHOWN],
    )
    same = sum(first == second for _, first, second in again)
    lines = [TEXTS["title"], "", summary, ""]
    if again:
        names = ", ".join(f"{name} ({first}; {second})" for name, first, second in again)
        lines += [TEXTS["again"].format(count=len(again), same=same, names=names), ""]
    lines += [TEXTS["written"].format(when=when, command=command), ""]
    return "\n".join([*lines, TEXTS["head"], "|---|---|---|---|---|---|---:|---|", *rows, ""])


def _elsewhere(claim: Claim, one: Outcome, target: str) -> str:
    """Return where a claim was tried, if not on its own target or on ``target``."""
    return f"; on {one.target}" if one.target not in ("", claim.target or target) else ""


def effect_words(claim: Claim, low: float, high: float) -> str:
    """Return the interval of an effect in words."""
    if claim.quantity in BY_DIFFERENCE:
        return f"{low:+.3g} to {high:+.3g}"
    return f"{low:.3g} to {high:.3g} times"


def in_paper(claim: Claim) -> str:
    """Return the paper's figure and its place."""
    return f"{claim.figure} ({claim.place})" if claim.figure else "not given"


def condition(claim: Claim) -> str:
    """Return the condition under which a claim is tried, and its baseline."""
    knobs = [", ".join(f"{k}={v}" for k, v in some.items()) for some in (claim.knobs, claim.baseline_knobs)]
    words = [f"temperature {claim.temperature:g}", ", ".join(claim.tasks) or "all tasks"]
    words += [f"on {claim.target}"] if claim.target else []
    words += [f"{claim.requests} requests at once"] if claim.requests > 1 else []
    words += ["request answered before"] if claim.repeated else []
    words += {"prompt": ["the prompt is the predicted output"], "schema": ["JSON schema"]}.get(
        claim.given, []
    )
    words += [f"a draft pass costs {claim.step:g}"] if claim.quantity == "modelled_time" else []
    words += [knobs[0]] if knobs[0] else []
    if claim.quantity in WITHOUT_IT:
        return "; ".join([*words, WITHOUT_WORDS[claim.quantity]])
    share = f"{claim.factor:g} times " if claim.factor != 1 else ""
    against = f"against {share}{catalogue()[claim.baseline].title}" + (f" ({knobs[1]})" if knobs[1] else "")
    return "; ".join([*words, against])


WITHOUT_WORDS = {  # the baseline of quantities that are counted in one run
    "equal_drafts": "against token-by-token rejection of the same drafts",
    "padded_rows": "against the same batch, padded",
    "cache_read": "against plain decoding of the same tokens",
    "chip_time": "against the same chip with its host",
    "expert_bytes": "against as many passes of one token",
    "draft_layers": "against all layers one after another",
    "inner_passes": "against one pass for each token",
}
TEXTS = {
    "title": "# What each paper claims, and what happens here",
    "summary": "Each claim is tried on {target} (or on the target that its condition names), the method beside its own baseline on the "
    "same prompts and seeds, in turns, until the interval of the mean effect excludes no effect (read after {looks} pairs, or when the "
    "prompts are used up; level {level:g} over all readings). Of {all} claims {tried} were tried to the end: {shown} are shown, "
    "{opposite} opposite, {not_shown} not shown; {open} more were read and are open, and strong effects are decided first. If no claim "
    "that was read had an effect, {by_chance:.2g} would be shown by chance; so at most "
    "{rate:.0%} of those shown are expected to be false. The quantities are counts and do not depend on the machine's speed; modelled "
    "times count passes. The papers' figures are of other models and mostly of times; they say what is claimed, not what to expect.",
    "again": "Of claims drawn at random {count} were repeated to the end, with other seeds on other prompts: {same} have the same "
    "verdict. {names}.",
    "written": "{when}; written by `{command}`.",
    "head": "| method | claim | condition | the paper | baseline to method | effect | pairs | verdict |",
}
