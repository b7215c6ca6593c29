"""``compare``: methods on one or several prompts as a pandas DataFrame."""
from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ..trace.files import Trace
from .lanes import method_keys, run_lanes

COLUMNS = ("prompt", "method", "title", "exactness", "tokens", "rounds", "tokens_per_pass", "acceptance_rate", "tokens_per_second",
           "speed_up", "doubtful", "same_text")
SLACK = 1.15  # factor by which a measured speed-up may exceed the tokens per pass (assets/viewer/timing.js)


def compare(prompts: str | Sequence[str], methods: str | Sequence[str] = ("speculative",), *, repeats: int = 1, **options: Any) -> Any:
    """Return a pandas DataFrame with a row per prompt and method, plain decoding last.

    speed_up: plain decoding's seconds per token over the method's, medians over ``repeats``; doubtful: other processes used the
    CPU, or the speed-up is larger than the tokens per pass allow; then compare by tokens_per_pass; same_text: the text equals
    plain decoding's, as expected of exact methods at temperature 0. options: as for ``watch``."""
    import pandas

    rows: list[dict[str, Any]] = []
    for prompt in [prompts] if isinstance(prompts, str) else prompts:
        records = [record for new in run_lanes(prompt, method_keys(methods, True), repeats=repeats, **options) for record in new]
        rows += lane_rows(Trace(records), prompt)
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def lane_rows(trace: Trace, prompt: str = "") -> list[dict[str, Any]]:
    """Return a row for each lane of a trace; the last lane is the baseline."""
    plain = trace.lanes[-1]
    base, text = _seconds_per_token(trace, plain), trace.text(plain)
    busy = any(check["kind"] == "busy" for lane in trace.lanes for check in trace.of("check", lane))
    rows = []
    for lane in trace.lanes:
        method, totals, took = trace.header(lane)["method"], trace.totals(lane), _seconds_per_token(trace, lane)
        each, speed_up = _ratio(totals.get("tokens"), totals.get("rounds")), base / took if base and took else None
        rows.append({"prompt": prompt, "method": method["key"], "title": method["title"], "exactness": method["exactness"],
                     "tokens": totals.get("tokens"), "rounds": totals.get("rounds"),
                     "tokens_per_pass": each,
                     "acceptance_rate": _ratio(totals.get("accepted"), totals.get("tried")),
                     "tokens_per_second": 1 / took if took else None, "speed_up": speed_up,
                     "doubtful": busy or (speed_up or 0.0) > max(1.0, each or 1.0) * SLACK, "same_text": trace.text(lane) == text})
    return rows


def _seconds_per_token(trace: Trace, lane: int) -> float | None:
    done = next(iter(trace.of("done", lane)), None)
    runs = [done["totals"], *done.get("totals", {}).get("repeats", ())] if done else []
    took = [run["seconds"] / run["tokens"] for run in runs if run["tokens"]]
    return statistics.median(took) if took else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
