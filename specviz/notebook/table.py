"""``compare``: methods on one or several prompts as a pandas DataFrame."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..trace.files import Trace
from .lanes import method_keys, run_lanes

COLUMNS = (
    "prompt",
    "method",
    "title",
    "exactness",
    "tokens",
    "rounds",
    "tokens_per_pass",
    "acceptance_rate",
    "tokens_per_second",
    "speed_up",
    "doubtful",
    "same_text",
)
SLOW = 1.5  # times the median of its lane, above which a run was disturbed
SLACK = 1.15  # factor by which a measured speed-up may exceed the tokens per pass (assets/viewer/timing.js)


def compare(
    prompts: str | Sequence[str],
    methods: str | Sequence[str] = ("speculative",),
    *,
    repeats: int = 1,
    **options: Any,
) -> Any:
    """Return a pandas DataFrame with a row per prompt and method, plain decoding last.

    speed_up: plain decoding's seconds per token over the method's, medians over the ``repeats`` that other
    processes did not disturb; doubtful: all were disturbed, or the speed-up is larger than the tokens per
    pass allow; then compare by tokens_per_pass; same_text: the text equals plain decoding's, as expected of
    exact methods at temperature 0. options: as for ``watch``."""
    import pandas

    rows: list[dict[str, Any]] = []
    for prompt in [prompts] if isinstance(prompts, str) else prompts:
        records = [
            record
            for new in run_lanes(prompt, method_keys(methods, True), repeats=repeats, **options)
            for record in new
        ]
        rows += lane_rows(Trace(records), prompt)
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def lane_rows(trace: Trace, prompt: str = "") -> list[dict[str, Any]]:
    """Return a row for each lane of a trace; the last lane is the baseline."""
    plain = trace.lanes[-1]
    turns = {lane: _turns(trace, lane) for lane in trace.lanes}
    kept = _undisturbed([mine for mine in turns.values() if mine])
    busy = any(turns.values()) and not kept
    seconds = {
        lane: _median([mine[turn][0] for turn in kept or range(1) if turn < len(mine)])
        for lane, mine in turns.items()
    }
    base, text = seconds[plain], trace.text(plain)
    rows = []
    for lane in trace.lanes:
        method = trace.header(lane)["method"]
        totals = trace.totals(lane)
        took = seconds[lane]
        each, speed_up = (
            _ratio(totals.get("tokens"), totals.get("rounds")),
            base / took if base and took else None,
        )
        rows.append(
            {
                "prompt": prompt,
                "method": method["key"],
                "title": method["title"],
                "exactness": method["exactness"],
                "tokens": totals.get("tokens"),
                "rounds": totals.get("rounds"),
                "tokens_per_pass": each,
                "acceptance_rate": _ratio(totals.get("accepted"), totals.get("tried")),
                "tokens_per_second": 1 / took if took else None,
                "speed_up": speed_up,
                "doubtful": busy or (speed_up or 0.0) > max(1.0, each or 1.0) * SLACK,
                "same_text": trace.text(lane) == text,
            }
        )
    return rows


def _turns(trace: Trace, lane: int) -> list[tuple[float, bool]]:
    """Return (seconds per token, whether other processes used the CPU) of a lane's run and of its repeats."""
    done = next(iter(trace.of("done", lane)), None)
    runs = [done["totals"], *done.get("totals", {}).get("repeats", ())] if done else []
    busy = [
        any(check["kind"] == "busy" for check in trace.of("check", lane)),
        *(bool(run.get("busy")) for run in runs[1:]),
    ]
    return [
        (run["seconds"] / run["tokens"], disturbed) for run, disturbed in zip(runs, busy) if run["tokens"]
    ]


def _undisturbed(lanes: list[list[tuple[float, bool]]]) -> list[int]:
    """Return the turns in which no lane was disturbed. A run that took SLOW times its lane's median was,
    too (as on the board: assets/viewer/timing.js)."""
    turns = range(min(map(len, lanes), default=0))
    usual = [
        sorted(seconds for seconds, _ in mine[: len(turns)])[(len(turns) - 1) // 2] for mine in lanes if turns
    ]
    slow = [SLOW * seconds if len(turns) > 2 else math.inf for seconds in usual]
    return [
        turn
        for turn in turns
        if not any(mine[turn][1] or mine[turn][0] > most for mine, most in zip(lanes, slow))
    ]


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
