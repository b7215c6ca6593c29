"""What a recorded run comes to, in one sentence: the page's headline (assets/viewer/headline.js), for previews
of links."""

from __future__ import annotations

from typing import Any, NamedTuple

from .files import Trace
from .speed import CLOSE, Speed, lane_times, speedup

WIDE = 1.1  # an interval whose ends are further apart is written out, as in headline.js
BASELINE = "autoregressive"
CUT = ("stopped", "deadline")


class Headline(NamedTuple):
    """lane: of the run that it is about; base: of plain decoding, None without one; sentence: in words."""

    lane: int
    base: int | None
    sentence: str


def headline(trace: Trace) -> Headline | None:
    """Return the headline of the first lane that is not plain decoding. None for a run that has not ended,
    or about which more must be said than counts: pictures, several answers, batches, servers, greedy texts that
    are not the same."""
    headers = {lane: trace.header(lane) for lane in trace.lanes if trace.of("header", lane)}
    lanes = [lane for lane, header in headers.items() if header["method"]["key"] != BASELINE]
    base = next((lane for lane, header in headers.items() if header["method"]["key"] == BASELINE), None)
    if not lanes or not all(_is_plain_text(trace, header, lane) for lane, header in headers.items()):
        return None
    lane = lanes[0]
    totals = trace.totals(lane)
    tokens, passes = totals.get("tokens", 0), len(trace.of("verify", lane))
    if not tokens or not passes:
        return None
    written, taken = _count(tokens, "token"), _count(passes, "pass", "passes")
    if base is None:
        return Headline(
            lane, base, f"{written} in {taken} of the large model; plain decoding needs {tokens}."
        )
    cut = any(trace.of("done", one)[0]["finish"] in CUT for one in (lane, base))
    fast, faster = _speed_words(trace, lane, base)
    if headers[lane]["sampling"]["temperature"] > 0:
        lead = f"Stopped after {written}, in {taken}" if cut else f"{written} in {taken}"
        end = f": {fast}" if fast and not cut else ""
        each = f"{tokens / passes:.2f} tokens a pass"
        return Headline(lane, base, f"{lead} of the large model, {each}{end}.")
    plain = trace.totals(base).get("tokens", 0)
    if not trace.text(base).startswith(trace.text(lane)) or tokens > plain or (tokens < plain and not cut):
        return None
    if cut:
        sentence = f"Stopped after {written}: the same so far, in {taken} instead of {tokens}."
        return Headline(lane, base, sentence)
    end = f"{': ' if faster else ', but '}{fast}" if fast else ""
    return Headline(lane, base, f"The same {written} in {taken} of the large model instead of {tokens}{end}.")


def _is_plain_text(trace: Trace, header: dict[str, Any], lane: int) -> bool:
    """Return whether a lane has ended and is one text of one request that the large model wrote."""
    ended = trace.of("done", lane)
    return (
        bool(ended)
        and ended[0]["finish"] != "error"
        and header.get("clock") != "client"
        and header.get("output", {"kind": "text"})["kind"] == "text"
        and not header.get("answer")
        and not any(record["kind"] == "class" for record in trace.of("lens", lane))
        and not any(record["tail"]["why"] == "small" for record in trace.of("commit", lane))
    )


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _speed_words(trace: Trace, lane: int, base: int) -> tuple[str, bool]:
    """Return the speed-up in words, empty where none is named, and whether it is one."""
    found = speedup(lane_times(trace.records, base), lane_times(trace.records, lane))
    if not found.named or found.value is None or found.low is None or found.high is None:
        return "", False
    digits = 2 if found.value < 1 else 1
    value, low, high = (f"{one:.{digits}f}" for one in (found.value, found.low, found.high))
    wide = found.high > WIDE * found.low
    about, span = ("about ", f" ({low} to {high})") if wide else ("", "")
    repeats = len(trace.totals(lane).get("repeats", ()))
    again = f" in the median of {repeats + 1} runs" if repeats else ""
    return _kind(found, about, value, low, high, span, wide) + again, found.clear and found.value >= CLOSE


def _kind(found: Speed, about: str, value: str, low: str, high: str, span: str, wide: bool) -> str:
    """Return the words of a named speed."""
    assert found.value is not None and found.high is not None
    if found.clear and found.value >= CLOSE:
        return f"{about}{value} times as fast{span}"
    if found.high < 1 and found.value * CLOSE < 1:
        ends = f", {low} to {high}" if wide else ""
        return f"slower than plain decoding here ({about}{value} times as fast{ends})"
    return "no clear difference in speed" + (f" ({low} to {high} times as fast)" if wide else "")
