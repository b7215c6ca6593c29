"""Test whether a method samples from the target's distribution: counts of its first tokens over many short
seeded runs against the enumerated distribution of the same target. Results grow while the test runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..core import Method, Sampling
from ..evidence.certificate import DEPTH, PROMPTS, NextTokenDistribution, encode, first_tokens
from ..evidence.statistics import Cells, chi_square, p_value
from ..evidence.whole_answers import CHANCE, PitValues, answer_generators
from ..run.request import SessionError, read_integer
from .payload import knobs_of, method_of, prompt_of, sampling_of

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

SAMPLES = 400  # samples by default
EVERY = 20  # samples between two reports
FEWEST = 20  # minimum runs, even after a stop
RED = 1e-3  # significance level: a correct method fails once in 1,000 tests
ENOUGH = 100  # minimum runs for a positive claim
ANSWER = 24  # tokens per answer


def distribution(
    loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Test whether a method samples from the target's distribution.

    payload {method, knobs?, prompt?, samples?, temperature?, seed?} -> {samples, tokens: [prefix of each
    cell], plain_law: probability of each cell under the target, method_counts, chi_square, freedom,
    p_value, asked, exactness, places: {p, samples, histogram, impossible} of the tokens of whole answers,
    verdict: "pass" | "fail" | "few" (too few samples to decide)
    | "open", said: a sentence}, yielded repeatedly as runs finish."""
    method = method_of(payload)
    samples = read_integer("samples", payload.get("samples", SAMPLES), 20, SAMPLES)
    probs = sampling_of(payload, 1.0)
    if probs.greedy:
        raise SessionError("A distribution is tested at a temperature above 0.", "lab.temperature")
    missing = loaded.unsupported_reason(method)
    if missing:
        raise SessionError(missing, "method.missing")
    if method.exactness == "greedy only":
        raise SessionError(f"{method.title} works at temperature 0 only.", "method.greedy_only")
    yield from tested(
        loaded, method, knobs_of(payload, method), prompt_of(payload, PROMPTS[0]), probs, samples, stop
    )


def tested(
    loaded: Loaded,
    method: Method,
    knobs: dict[str, Any],
    prompt: str,
    probs: Sampling,
    samples: int,
    stop: Callable[[], bool],
) -> Iterator[dict[str, Any]]:
    """Test one method, of the catalogue or not; yield the growing result of ``distribution``. probs: the
    sampling settings."""
    ids = encode(loaded, prompt)
    distributions = NextTokenDistribution(loaded.open_target(), ids, probs)
    with torch.inference_mode():
        cells = Cells.build(distributions, samples, DEPTH, loaded.end_tokens)
    if len(cells.expected) < 2:
        raise SessionError(
            "The target leaves no choice here: one continuation is all but certain. Try a higher temperature.",
            "lab.no_choice",
        )
    seen: list[Any] = []
    counts, places = Counter(), PitValues()
    runs = first_tokens(loaded, method, knobs, ids, probs, samples)
    walk = answer_generators(loaded, method, knobs, [ids], probs, ANSWER)
    while len(seen) < samples and not (len(seen) >= FEWEST and stop()):
        with torch.inference_mode():
            seen.append(next(runs)[0])
        counts[cells.find(seen[-1])] += 1
        if len(seen) % EVERY == 0 and len(seen) < samples and not stop():
            next(walk)(places)
            yield _report(loaded, method, cells, counts, places, len(seen), samples, False)
    runs.close()
    if len(seen) < samples:  # rebuild the cells for fewer samples, so that none expects too few
        with torch.inference_mode():
            cells = Cells.build(distributions, len(seen), DEPTH, loaded.end_tokens)
        counts = Counter(cells.find(tokens) for tokens in seen)
    yield _report(loaded, method, cells, counts, places, len(seen), samples, True)


def _report(
    loaded: Loaded,
    method: Method,
    cells: Cells,
    counts: Counter,
    places: PitValues,
    played: int,
    asked: int,
    over: bool,
) -> dict[str, Any]:
    statistic, freedom = chi_square(cells.expected, counts, played)
    prob = p_value(statistic, freedom)
    keys = sorted(cells.expected, key=lambda cell: -cells.expected[cell])
    whole = places.report()
    wrong = prob <= RED or whole["p"] < CHANCE
    enough = played >= min(asked, SAMPLES) and played >= ENOUGH
    verdict = "open" if not over else "fail" if wrong else "pass" if enough else "few"
    return {
        "method": method.key,
        "title": method.title,
        "exactness": method.exactness,
        "samples": played,
        "asked": asked,
        "depth": DEPTH,
        "tokens": [_named(loaded, cell) for cell in keys],
        "plain_law": [cells.expected[cell] for cell in keys],
        "method_counts": [counts[cell] for cell in keys],
        "freedom": freedom,
        "p_value": prob,
        "chi_square": statistic if math.isfinite(statistic) else None,
        "places": {key: whole[key] for key in ("p", "samples", "histogram", "impossible")},
        "verdict": verdict,
        "said": _claim(verdict, played, asked),
    }


TEXTS = {  # by verdict
    "few": "{asked} samples were requested and {played} were drawn. That is too few to claim that they follow the target's distribution: "
    "no difference was found, but {needed} are needed for the test.",
    "pass": "No difference from the target's distribution in {played} samples.",
    "fail": "They do not follow the target's distribution.",
}


def _claim(verdict: str, played: int, asked: int) -> str:
    """Return the sentence that the result supports."""
    if verdict == "few":
        return TEXTS["few"].format(asked=asked, played=played, needed=max(ENOUGH, asked))
    return TEXTS[verdict].format(played=played) if verdict in TEXTS else ""


def _named(loaded: Loaded, cell: Any) -> str:
    """Return the prefix of a cell as text, with an ellipsis if it pools continuations."""
    if cell == Cells.POOL:
        return "everything else"
    known = [token for token in cell if token is not None]
    text = b"".join(loaded.token_bytes(token) for token in known).decode("utf-8", "replace")
    return text + ("\u2026" if len(known) < len(cell) else "")
