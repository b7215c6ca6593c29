"""The exercise about the draft length: predict tokens per second from measured costs, choose, then measure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Any

import torch

from ..core import Parts, Sampling, State
from ..drafters.model.chain import DraftChain
from ..loops import speculate
from ..policies import Fixed
from ..trace.events import Committed
from ..verifiers import TokenRejection
from .engine_checks import short, whole
from .exercise import Check, Code, Exercise, Mistake, Report, failed, passed, source_of_numbers
from .submission import SubmissionError, TrustedCode
from .toy_models import PROMPTS, TinyLoaded
from .verification import answer_check

LONGEST = 6  # draft lengths that are compared
TABLES = 25
TOLERANCE = 0.005  # of a predicted rate, as a share
ROUNDS = 80  # rounds that are measured for each draft length
WIDE = 3.0  # standard errors of an interval


def source(
    tokens: str = "1 + sum(survive)",
    cost: str = "gamma * draft_seconds + verify_seconds[gamma]",
    survive: str = "survive[-1] * accept[i]",
    objective: str = "expected / seconds",
) -> str:
    """Return the source of the prediction with one line changed."""
    return f"""
def predict(accept, draft_seconds, verify_seconds):
    rates = []
    for gamma in range(1, len(accept) + 1):
        survive = [1.0]
        for i in range(gamma):
            survive.append({survive})
        survive = survive[1:]
        expected = {tokens}
        seconds = {cost}
        rates.append({objective})
    return rates

def choose(accept, draft_seconds, verify_seconds):
    rates = predict(accept, draft_seconds, verify_seconds)
    return 1 + rates.index(max(rates))
"""


MISTAKES = (
    Mistake(
        "no_bonus",
        "a prediction without the token that every round adds, whether drafts are accepted or not",
        source(tokens="sum(survive)"),
    ),
    Mistake(
        "not_multiplied",
        "acceptance that is not multiplied along the draft: a token counts only if all before it were accepted",
        source(survive="accept[i]"),
    ),
    Mistake(
        "mean_acceptance",
        "one mean acceptance at every position: later positions are accepted less often",
        source(survive="survive[-1] * sum(accept) / len(accept)"),
    ),
    Mistake(
        "first_acceptance",
        "the first position's acceptance at every position",
        source(survive="survive[-1] * accept[0]"),
    ),
    Mistake(
        "one_draft_step",
        "one draft step a round: each drafted token costs one",
        source(cost="draft_seconds + verify_seconds[gamma]"),
    ),
    Mistake("free_draft", "drafting that costs nothing", source(cost="verify_seconds[gamma]")),
    Mistake(
        "flat_verify",
        "a pass that costs the same whatever it verifies",
        source(cost="gamma * draft_seconds + verify_seconds[0]"),
    ),
    Mistake(
        "verify_row",
        "the cost of a pass with one token too few: verify_seconds[gamma] is the pass that checks gamma drafted tokens",
        source(cost="gamma * draft_seconds + verify_seconds[gamma - 1]"),
    ),
    Mistake(
        "tokens_only",
        "the most tokens a round: the aim is the most tokens a second",
        source(objective="expected"),
    ),
)
Table = tuple[list[float], float, list[float]]


def tables() -> list[Table]:
    """Return (acceptance by position, seconds of a draft step, seconds of a pass by drafted tokens) of many
    machines."""
    rng = random.Random(11)
    found: list[Table] = []
    for _ in range(TABLES):
        first = rng.uniform(0.4, 0.95)
        accept = [round(first * rng.uniform(0.75, 1.0) ** i, 3) for i in range(LONGEST)]
        step = round(rng.uniform(0.02, 0.4), 3)
        slope = rng.choice((0.01, 0.05, 0.2))
        found.append(
            (accept, step, [round(1 + slope * n * rng.uniform(0.8, 1.2), 3) for n in range(LONGEST + 1)])
        )
    return found


def predicted(accept: Sequence[float], step: float, passes: Sequence[float]) -> list[float]:
    """Return the expected tokens per second of each draft length."""
    rates = []
    survive, total = 1.0, 1.0
    for gamma in range(1, len(accept) + 1):
        survive *= accept[gamma - 1]
        total += survive
        rates.append(total / (gamma * step + passes[gamma]))
    return rates


def call(code: Code, table: Table) -> tuple[list[float], int]:
    """Call predict and choose of a submission. Raises SubmissionError."""
    rates = code.call("predict", *table)
    chosen = code.call("choose", *table)
    try:
        numbers, gamma = [float(rate) for rate in rates], whole(chosen)
    except (TypeError, ValueError):
        raise SubmissionError("answer.rates", name=code.name, answer=short((rates, chosen))) from None
    if (
        len(numbers) != len(table[0])
        or not 1 <= gamma <= len(table[0])
        or not all(map(math.isfinite, numbers))
    ):
        raise SubmissionError("answer.rates", name=code.name, answer=short((rates, chosen)))
    return numbers, gamma


def near(given: Sequence[float], right: Sequence[float]) -> bool:
    """Return whether rates agree."""
    return all(abs(a - b) <= TOLERANCE * abs(b) for a, b in zip(given, right))


def predictions_check(code: Code, report: Report) -> Check:
    """Compare predictions with the expected rates on many tables."""
    given = [call(code, table) for table in tables()]
    wrong = [
        i for i, (table, (rates, _)) in enumerate(zip(tables(), given)) if not near(rates, predicted(*table))
    ]
    figures: dict[str, Any] = {"tables": len(given), "wrong": len(wrong)}
    if not wrong:
        return passed("predictions", "rates.right", figures, tables=len(given))
    figures |= {
        "table": tables()[wrong[0]],
        "given": given[wrong[0]][0],
        "right": predicted(*tables()[wrong[0]]),
    }
    for mistake in MISTAKES:
        known = TrustedCode(mistake.source, mistake.key)
        if all(near(rates, call(known, table)[0]) for table, (rates, _) in zip(tables(), given)):
            report.behaves_like = mistake.key
            return failed("predictions", "rates.known", figures, sentence=mistake.sentence)
    return failed("predictions", "rates.unknown", figures, wrong=len(wrong), tables=len(given))


def choice_check(code: Code) -> Check:
    """Compare the chosen draft length with the best one on many tables."""
    worst = 1.0
    for table in tables():
        rates, chosen = predicted(*table), call(code, table)[1]
        worst = min(worst, rates[chosen - 1] / max(rates))
    figures = {"worst_share_of_best": round(worst, 4)}
    if worst >= 1 - TOLERANCE:
        return passed("choice", "choice.right", figures, tables=TABLES)
    return failed("choice", "choice.wrong", figures, share=f"{worst:.0%}")


@cache
def measured_rounds(gamma: int, seed: int, rounds: int = ROUNDS) -> tuple[int, ...]:
    """Return the number of accepted tokens of each round of sampled runs on the tiny models."""
    loaded, found = TinyLoaded(seed % 5, share=0.25), []
    kit = loaded.kit()
    drafter = DraftChain(kit.open("draft"))
    parts = Parts(drafter, Fixed(gamma), TokenRejection())
    run = 0
    with torch.inference_mode():
        while len(found) < rounds:
            ids = PROMPTS[run % len(PROMPTS)]
            state = State(list(ids), Sampling(1.0, seed=1000 * seed + run), limit=60)
            with closing(speculate(parts, kit.target, state)) as events:
                counts = [len(event.tokens) - 1 for event in events if isinstance(event, Committed)]
            found += counts[: -1 - gamma]  # the last rounds are cut at the limit
            run += 1
    return tuple(found[:rounds])


def acceptance(seed: int) -> list[float]:
    """Return the measured acceptance at each position, given that all before it were accepted."""
    counts = measured_rounds(LONGEST, seed, 2 * ROUNDS)
    return [
        round(sum(c > i for c in counts) / max(1, sum(c >= i for c in counts)), 4) for i in range(LONGEST)
    ]


def measurement_check(code: Code, student: str) -> Check:
    """Predict with acceptances measured on the tiny models, then measure every draft length there."""
    seed = source_of_numbers(student, "draft_length/runs").randrange(1000)
    _, step, passes = _own_table(student)
    table = acceptance(seed), step, passes
    rates, chosen = call(code, table)
    rows = []
    for gamma in range(1, LONGEST + 1):
        tokens = torch.tensor(measured_rounds(gamma, seed + 1), dtype=torch.float64) + 1
        seconds = gamma * step + passes[gamma]
        mean, error = float(tokens.mean()) / seconds, float(tokens.std()) / len(tokens) ** 0.5 / seconds
        rows.append(
            {
                "gamma": gamma,
                "predicted": round(rates[gamma - 1], 4),
                "low": round(mean - WIDE * error, 4),
                "high": round(mean + WIDE * error, 4),
            }
        )
    best = max(rows, key=lambda row: row["low"] + row["high"])
    figures = {"chosen": chosen, "best": best["gamma"], "rows": rows}
    if rows[chosen - 1]["high"] >= best["low"]:
        inside = sum(row["low"] <= row["predicted"] <= row["high"] for row in rows)
        return passed("measurement", "measured.right", figures, gamma=chosen, inside=inside, count=len(rows))
    return failed("measurement", "measured.wrong", figures, gamma=chosen, best=best["gamma"])


def _own_table(student: str) -> Table:
    rng = source_of_numbers(student, "draft_length")
    first = rng.uniform(0.6, 0.9)
    accept = [round(first * 0.95**i, 2) for i in range(LONGEST)]
    return accept, round(rng.uniform(0.08, 0.2), 2), [round(1 + 0.04 * n, 2) for n in range(LONGEST + 1)]


def _answers(student: str) -> list[float]:
    rates = predicted(*_own_table(student))
    return [1.0 + rates.index(max(rates)), max(rates)]


def _numbers(student: str) -> dict[str, Any]:
    return dict(zip(("ACCEPT", "DRAFT_SECONDS", "VERIFY_SECONDS"), _own_table(student)))


def check(code: Code, student: str, report: Report) -> None:
    """Check a submission."""
    report.checks.append(answer_check(code, _answers(student)))
    report.checks.append(predictions_check(code, report))
    report.checks.append(choice_check(code))
    report.checks.append(measurement_check(code, student))


DRAFT_LENGTH = Exercise(
    "draft_length",
    "The draft length: predict, choose, measure",
    ("predict", "choose"),
    _numbers,
    check,
    MISTAKES,
)
