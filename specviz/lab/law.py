"""Does a method follow the target's law? Its first tokens over many short seeded runs on the real engine, counted, against the
law itself, enumerated by plain decoding of the same target. The counts grow while one watches."""
from __future__ import annotations

import math
from collections import Counter
from typing import Any, Callable, Iterator

import torch

from ..evidence.certificate import DEPTH, PROMPTS, NextLaw, encode, first_tokens
from ..core import Method, Sampling
from ..evidence.statistics import Cells, chi_square, p_value
from ..run.request import SessionError, read_whole
from .read import knobs_of, method_of, prompt_of, sampling_of

SAMPLES, EVERY = 400, 20
FEWEST = 20  # runs that are played even when time is up
RED = 1e-3  # a right method is called wrong once in a thousand tests


def distribution(loaded: Any, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """payload {method, knobs?, prompt?, samples?, temperature?, seed?} -> {samples, tokens: [what each cell begins with],
    plain_law, method_counts, chi_square, freedom, p_value, verdict: "pass" | "fail" | "open", exactness}, growing."""
    method = method_of(payload)
    samples = read_whole("samples", payload.get("samples", SAMPLES), 20, SAMPLES)
    law = sampling_of(payload, 1.0)
    if law.greedy:
        raise SessionError("A distribution is tested at a temperature above 0.")
    missing = loaded.why_not(method)
    if missing:
        raise SessionError(missing)
    if method.exactness == "greedy only":
        raise SessionError(f"{method.title} works at temperature 0 only.")
    yield from tested(loaded, method, knobs_of(payload, method), prompt_of(payload, PROMPTS[0]), law, samples, stop)


def tested(loaded: Any, method: Method, knobs: dict[str, Any], prompt: str, law: Sampling, samples: int,
           stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """The test of one method, listed anywhere or not."""
    ids = encode(loaded, prompt)
    with torch.inference_mode():
        cells = Cells.of(NextLaw(loaded.open_target(), ids, law), samples, DEPTH, loaded.end_tokens)
    if len(cells.expected) < 2:
        raise SessionError("The target leaves no choice here: one continuation is all but certain. Try a higher temperature.")
    counts, played = Counter(), 0
    runs = first_tokens(loaded, method, knobs, ids, law, samples)
    while played < samples and not (played >= FEWEST and stop()):
        with torch.inference_mode():
            counts[cells.find(next(runs)[0])] += 1
        played += 1
        if played % EVERY == 0 and played < samples and not stop():
            yield _told(loaded, method, cells, counts, played, False)
    runs.close()
    yield _told(loaded, method, cells, counts, played, True)


def _told(loaded: Any, method: Method, cells: Cells, counts: Counter, played: int, over: bool) -> dict[str, Any]:
    statistic, freedom = chi_square(cells.expected, counts, played)
    chance = p_value(statistic, freedom)
    keys = sorted(cells.expected, key=lambda cell: -cells.expected[cell])
    return {"method": method.key, "title": method.title, "exactness": method.exactness, "samples": played, "depth": DEPTH,
            "tokens": [_named(loaded, cell) for cell in keys], "plain_law": [cells.expected[cell] for cell in keys],
            "method_counts": [counts[cell] for cell in keys],
            "chi_square": statistic if math.isfinite(statistic) else None, "freedom": freedom, "p_value": chance,
            "verdict": ("pass" if chance > RED else "fail") if over else "open"}


def _named(loaded: Any, cell: Any) -> str:
    """What a cell's continuations begin with, as text; an ellipsis for what it pools."""
    if cell == Cells.POOL:
        return "everything else"
    known = [token for token in cell if token is not None]
    text = b"".join(loaded.token_bytes(token) for token in known).decode("utf-8", "replace")
    return text + ("\u2026" if len(known) < len(cell) else "")
