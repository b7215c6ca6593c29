"""The cost of a long context and the gain from drafting with a reduced KV cache, measured up to the
target's context and extrapolated beyond.

A forward pass takes the time to read the weights, plus the time to read keys and values of each cached
token: a linear fit to measured passes. MagicDec (2408.11049), TriForce (2404.11912) and QuantSpec
(2502.10424) draft with passes over fewer cached tokens, whose duration follows the same line. Tokens per
round are those of a run at the longest measured context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..core import State
from ..loops import speculate
from ..methods import catalogue
from ..trace.events import Noted
from ..trace.metrics import Totals, walltime_speedup
from ..zoo.text import encode_plain
from .pass_costs import machine, time_pass
from .tasks import sample_prompts

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

LENGTHS = (64, 256, 512, 1024, 1536, 2048)  # context lengths, up to the target's limit
BEYOND = tuple(2**i for i in range(9, 18))
TURNS = 7  # measurements per pass; the fastest counts
WRITTEN = 48  # tokens generated per method
ROOM = 64  # positions reserved for them
# By method: knobs used here, about a quarter of 2,000 tokens, and the number of cached tokens a drafting
# pass reads out of n. Quantised entries count by their bits relative to ``full``, although this
# implementation keeps them at full width.
LEAN: dict[str, tuple[dict[str, int], Callable[[int, dict[str, Any], int], float]]] = {
    "magicdec": ({"window": 512}, lambda n, knobs, full: min(n, knobs["sinks"] + knobs["window"])),
    "triforce": ({"budget": 512}, lambda n, knobs, full: min(n, knobs["budget"] + knobs["window"])),
    "quantspec": ({"group": 128, "window": 128}, lambda n, knobs, full: n * min(1.0, knobs["bits"] / full)),
}


@dataclass(frozen=True)
class LinearFit:
    """Seconds of a forward pass with n cached tokens: base + token * n. Calling it with n returns the
    seconds."""

    base: float
    token: float

    def __call__(self, tokens: float) -> float:
        return self.base + self.token * tokens

    @classmethod
    def fit(cls, lengths: list[int], seconds: list[float]) -> LinearFit:
        """Fit a non-decreasing line by least squares."""
        x, y = sum(lengths) / len(lengths), sum(seconds) / len(seconds)
        spread = sum((n - x) ** 2 for n in lengths)
        token = max(0.0, sum((n - x) * (s - y) for n, s in zip(lengths, seconds)) / spread) if spread else 0.0
        return cls(max(1e-9, y - token * x), token)


@dataclass(frozen=True)
class MeasuredRun:
    """A run at the longest context: its totals, and the number of rounds of its inner speculative run
    (``inner``; TriForce)."""

    totals: Totals
    inner: int

    @property
    def tokens(self) -> float:
        """Tokens per round."""
        return self.totals.tokens / max(1, self.totals.rounds)


def context_costs(
    loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Measure forward passes and methods at several context lengths; yield the growing report.

    {lengths, seconds: of a one-token pass, base, token: the fitted line, longest: longest measured length,
    extrapolated: lengths beyond it, methods: [{method, title, knobs, tokens: per round, measured: speed-up
    at the longest length, extrapolated: predicted speed-ups}], machine}. Methods that cannot run on these
    models are left out."""
    methods = {key: method for key in LEAN if loaded.unsupported_reason(method := catalogue()[key]) is None}
    knobs = {key: method.read_knobs(LEAN[key][0]) for key, method in methods.items()}
    counts = sorted({1, *(1 + k[name] for k in knobs.values() for name in ("gamma", "inner") if name in k)})
    text = _text(loaded, max(min(loaded.context, LENGTHS[-1] + ROOM) - ROOM, 2) + max(counts))
    lengths = [n for n in LENGTHS if n + ROOM <= loaded.context] or [len(text) - max(counts)]
    if lengths[-1] < LENGTHS[-1] and len(text) - max(counts) > lengths[-1]:
        lengths.append(len(text) - max(counts))
    took: dict[int, list[float]] = {count: [] for count in counts}
    with closing(loaded.open_target()) as target, torch.inference_mode():
        for n in lengths:
            turns = [
                [time_pass(target, text[:n], text[n : n + count - 1]) for count in counts]
                for _ in range(TURNS + 1)
            ]
            for count, (_, *seconds) in zip(counts, zip(*turns)):
                took[count].append(min(seconds))  # the first turn is a warm-up; noise only adds time
            seen = lengths[: len(took[1])]
            lines = {count: LinearFit.fit(seen, seconds) for count, seconds in took.items()}
            result = {
                "lengths": seen,
                "seconds": list(took[1]),
                "base": lines[1].base,
                "token": lines[1].token,
                "longest": n,
                "extrapolated": list(BEYOND),
                "methods": [],
                "machine": machine(loaded),
            }
            yield result
            if stop():
                return
    step, plain = _step(loaded, text[: lengths[-1]]), None
    for key, method in methods.items():
        plain = plain or _played(loaded, catalogue()["autoregressive"], {}, text[: lengths[-1]])
        if stop():
            return
        found = _played(loaded, method, knobs[key], text[: lengths[-1]])
        result = result | {
            "methods": [*result["methods"], _report(loaded, method, knobs[key], found, plain, lines, step)]
        }
        yield result


def _report(
    loaded: Loaded,
    method: Any,
    knobs: dict[str, Any],
    found: MeasuredRun,
    plain: MeasuredRun,
    lines: dict[int, LinearFit],
    step: float,
) -> dict[str, Any]:
    full = torch.finfo(getattr(torch, loaded.facts["env"]["dtype"])).bits
    return {
        "method": method.key,
        "title": method.title,
        "knobs": LEAN[method.key][0],
        "tokens": found.tokens,
        "measured": walltime_speedup(plain.totals.run_time, found.totals.run_time),
        "extrapolated": [predicted_speedup(n, method.key, knobs, found, lines, step, full) for n in BEYOND],
    }


def predicted_speedup(
    n: int,
    key: str,
    knobs: dict[str, Any],
    found: MeasuredRun,
    lines: dict[int, LinearFit],
    step: float,
    full: int,
) -> float:
    """Return the predicted speed-up at a context of n tokens: tokens per round, times the duration of a
    plain pass, over the duration of drafting and verification."""
    read, rounds = LEAN[key][1](n, knobs, full), max(1, found.totals.rounds)
    drafted = found.totals.drafted / rounds * lines[1](read)
    if "inner" in knobs:
        drafted = found.inner / rounds * (lines[1 + knobs["inner"]](read) + knobs["inner"] * step)
    return found.tokens * lines[1](n) / (drafted + lines[1 + knobs["gamma"]](n))


def _text(loaded: Loaded, count: int) -> list[int]:
    """Return ``count`` tokens of the shipped prompts, repeated if needed."""
    ids = encode_plain(loaded.tokenizer, "\n\n".join(sample_prompts(10**6)))
    return (ids * (count // len(ids) + 1))[:count]


def _step(loaded: Loaded, text: list[int]) -> float:
    """Return the seconds of a one-token pass of the draft model, 0 without one."""
    if loaded.draft is None:
        return 0.0
    with closing(loaded.kit()) as kit, torch.inference_mode():
        model = kit.open("draft")
        return min(time_pass(model, text[-64:], []) for _ in range(TURNS + 1))


def _played(loaded: Loaded, method: Any, knobs: dict[str, Any], text: list[int]) -> MeasuredRun:
    totals, inner = Totals(), 0
    with closing(loaded.kit()) as kit, torch.inference_mode():
        parts = method.build(kit, **method.read_knobs(knobs))
        with closing(
            (parts.loop or speculate)(parts, kit.target, State(list(text), limit=WRITTEN))
        ) as events:
            for event in events:
                totals.fold(event)
                if isinstance(event, Noted) and event.kind == "staged":
                    inner += event.data["rounds"]
    return MeasuredRun(totals, inner)
