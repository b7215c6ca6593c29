"""``compare``: methods on one or several prompts as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..lab.compare import compare as judge
from ..lab.compare import lanes_of
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
    "speed_up_low",
    "speed_up_high",
    "replaced",
    "same_text",
)


def compare(
    prompts: str | Sequence[str],
    methods: str | Sequence[str] = ("speculative",),
    *,
    repeats: int = 1,
    **options: Any,
) -> Any:
    """Return a pandas DataFrame with a row per prompt and method, plain decoding last.

    speed_up, speed_up_low, speed_up_high: plain decoding's seconds per token over the method's, and the
    interval; missing where the times say too little: compare by tokens_per_pass then; replaced: interrupted
    passes that count as the lane's usual one (trace/speed.py); same_text: the text equals plain decoding's, as expected of
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
    """Return a row for each lane of a trace; the last lane is the baseline. Speeds are those of ``/compare``
    and of the page (lab/compare.py)."""
    plain = trace.lanes[-1]
    lanes = lanes_of(trace.records)
    replaced = {one["lane"]: one["times"].replaced for one in lanes}
    judged = judge(lanes, trace.header(plain)["method"]["key"])["rows"]
    found = {row["lane"]: row for row in judged}
    text = trace.text(plain)
    rows = []
    for lane in trace.lanes:
        method = trace.header(lane)["method"]
        totals = trace.totals(lane)
        speeds = found.get(lane, {})
        rows.append(
            {
                "prompt": prompt,
                "method": method["key"],
                "title": method["title"],
                "exactness": method["exactness"],
                "tokens": totals.get("tokens"),
                "rounds": totals.get("rounds"),
                "tokens_per_pass": _ratio(totals.get("tokens"), totals.get("rounds")),
                "acceptance_rate": _ratio(totals.get("accepted"), totals.get("tried")),
                "tokens_per_second": speeds.get("tokens_per_second"),
                "speed_up": speeds.get("walltime_speedup"),
                "speed_up_low": speeds.get("speedup_low"),
                "speed_up_high": speeds.get("speedup_high"),
                "replaced": replaced.get(lane),
                "same_text": trace.text(lane) == text,
            }
        )
    return rows


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
