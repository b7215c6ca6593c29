"""The fields of every record of ``specviz-trace/1`` (docs/TRACE.md), as data.

A check is called with a value and a description of its place in the record, and raises TraceError.
"""
from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any

from ..core.errors import CodedError

Check = Callable[[Any, str], None]
BIG = 2**53  # what a JavaScript number holds exactly
LONGEST_TEXT = 1_000_000  # characters
LONGEST_LIST = 200_000  # items
DEEPEST = 12  # levels of nested data
PROMPT = 100_000  # characters of a prompt and its earlier turns
PIECE = 4096  # characters of a token's bytes in base64


class TraceError(CodedError, ValueError):
    """Not a valid trace."""


def whole(low: int = 0, high: int = BIG) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not int or not low <= value <= high:
            raise TraceError(f"{where} must be a whole number from {low} to {high}.", "trace.whole")
    return check


def number(low: float = -1e15, high: float = 1e15) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) not in (int, float) or not low <= value <= high:  # NaN fails too
            raise TraceError(f"{where} must be a finite number from {low:g} to {high:g}.", "trace.number")
    return check


def text(most: int = LONGEST_TEXT) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or len(value) > most:
            raise TraceError(f"{where} must be text of at most {most} characters.", "trace.text")
    return check


def one_of(*choices: str) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or value not in choices:
            raise TraceError(f"{where} must be one of {', '.join(choices)}.", "trace.choice")
    return check


def maybe(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)
    return check


def many(inner: Check, most: int = LONGEST_LIST) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) > most:
            raise TraceError(f"{where} must be a list of at most {most} entries.", "trace.long_list")
        for i, one in enumerate(value):
            inner(one, f"{where}[{i}]")
    return check


def row(*inner: Check) -> Check:
    """Return a check for a list of fixed length."""
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != len(inner):
            raise TraceError(f"{where} must be a list of {len(inner)} entries.", "trace.list_length")
        for one, each in zip(value, inner):
            each(one, where)
    return check


def fields(**inner: Check) -> Check:
    """Return a check for an object. A name that ends in ``_`` is optional; unknown fields (of later versions) are
    allowed if they are plain data."""
    needed = {name: check for name, check in inner.items() if not name.endswith("_")}
    known = {name.rstrip("_"): check for name, check in inner.items()}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise TraceError(f"{where} must be an object.", "trace.object")
        for name in needed:
            if name not in value:
                raise TraceError(f"{where} lacks {name}.", "trace.lacks")
        for name, one in value.items():
            known.get(name, plain)(one, f"{where}: {name[:40]}")
    return check


def plain(value: Any, where: str, depth: int = 0) -> None:
    """Check that a value is JSON data without cycles and non-finite numbers."""
    if depth > DEEPEST:
        raise TraceError(f"{where} is nested too deeply.", "trace.depth")
    if isinstance(value, dict):
        for one in value.values():
            plain(one, where, depth + 1)
    elif isinstance(value, list):
        for one in value:
            plain(one, where, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise TraceError(f"{where} must be finite.", "trace.not_finite")
    elif isinstance(value, int) and abs(value) > 2**64:
        raise TraceError(f"{where} is too large a number.", "trace.large_number")


def anything(value: Any, where: str) -> None:
    """Check an object of plain data."""
    if not isinstance(value, dict):
        raise TraceError(f"{where} must be an object.", "trace.object")
    plain(value, where)


def encoded(value: Any, where: str) -> None:
    """Check bytes in base64."""
    if not isinstance(value, str) or len(value) > PIECE:
        raise TraceError(f"{where} must be bytes in base64, at most {PIECE} characters.", "trace.base64")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise TraceError(f"{where} must be bytes in base64.", "trace.base64") from None


def asked(value: Any, where: str) -> None:
    """Check a prompt with its earlier turns."""
    _PROMPT(value, where)
    if len(value["text"]) + sum(len(turn["text"]) for turn in value["turns"]) > PROMPT:
        raise TraceError(f"{where}: a prompt and its turns hold at most {PROMPT} characters.", "trace.prompt")


def vocabulary(value: Any, where: str) -> None:
    """Check {"id": bytes}."""
    if not isinstance(value, dict) or len(value) > LONGEST_LIST:
        raise TraceError(f"{where} must be an object of token bytes.", "trace.token_bytes")
    for name, one in value.items():
        if not (name.isascii() and name.isdigit() and len(name) <= 9):
            raise TraceError(f"{where} must be keyed by token ids.", "trace.token_ids")
        encoded(one, where)


COUNT = whole()  # a count
SECONDS = number(0, 1e9)  # a time
TOKEN = whole(-1, 2**31)  # a token id, -1 if unknown
PROBABILITY = number(-1e-6, 1e6)  # a ratio too, and rounding
LABEL = text(2000)
DISTRIBUTION = many(row(TOKEN, PROBABILITY), 1000)
NODES = 4096

NODE = fields(id=whole(0, NODES), parent=whole(-1, NODES), depth=whole(1, NODES), tok=TOKEN, q=maybe(PROBABILITY), how=LABEL,
              top_=DISTRIBUTION, src_=fields(source=LABEL, start=COUNT, end=COUNT), probe_=plain)
_PROMPT = fields(text=text(PROMPT), ids=many(TOKEN), turns=many(fields(role=LABEL, text=text(PROMPT)), 1000))
HEADER = fields(
    schema=one_of("specviz-trace/1"), run_id=LABEL, created=LABEL, mode=one_of("live", "recorded", "simulated"),
    method=fields(key=LABEL, title=LABEL, family=LABEL, exactness=LABEL, paper=LABEL, summary=text(20_000)),
    knobs=anything, prompt=asked,
    sampling=fields(temperature=number(), top_k=COUNT, top_p=number(), seed=whole(-2**63, 2**63)), max_new_tokens=COUNT,
    target=fields(name=LABEL), draft=maybe(fields(name=LABEL)), tokenizer=LABEL, env=anything, clock=one_of("engine", "client"),
    top_k_saved=COUNT, baseline_run_id=maybe(LABEL), answer_=fields(index=COUNT, of=COUNT), about_=fields(title=LABEL, text=LABEL),
    output_=fields(kind=LABEL, rows_=whole(1, 64), columns_=whole(1, 64), patch_=whole(1, 64), grids_=many(whole(1, 64), 16)),
)
TOTALS = fields(
    **{f"{name}_": COUNT for name in ("tokens", "rounds", "drafted", "accepted", "tried", "text_bytes", "remembered")},
    **{f"{name}_": number() for name in ("seconds", "prefill_seconds", "draft_seconds", "verify_seconds", "judge_seconds",
                                         "cache_seconds", "other_seconds", "forward_seconds")},
    by_position_=many(row(COUNT, COUNT), NODES),
)
SCHEMA: dict[str, Check] = {
    "header": HEADER,
    "vocab": fields(tokens=vocabulary, special=many(TOKEN)),
    "prefill": fields(t0=SECONDS, t1=SECONDS, n=COUNT),
    "draft": fields(round=COUNT, t0=SECONDS, t1=SECONDS, kind=LABEL, nodes=many(NODE, NODES)),
    "verify": fields(round=COUNT, t0=SECONDS, t1=SECONDS, n_in=COUNT),
    "judge": fields(round=COUNT, node=whole(0, NODES), rule=LABEL, p=maybe(PROBABILITY), q=maybe(PROBABILITY),
                    a_=maybe(PROBABILITY), u=maybe(PROBABILITY), verdict=one_of("accepted", "rejected", "skipped"),
                    top_p_=DISTRIBUTION, resid_=DISTRIBUTION, softmax_p_=maybe(PROBABILITY), top_softmax_=DISTRIBUTION),
    "commit": fields(round=COUNT, t=SECONDS, path=many(whole(0, NODES), NODES), n_new=whole(0, NODES + 1),
                     tail=fields(tok=TOKEN, why=LABEL, p_=maybe(PROBABILITY), top_=DISTRIBUTION, softmax_p_=maybe(PROBABILITY),
                                 top_softmax_=DISTRIBUTION),
                     logprobs_=many(maybe(number()), NODES + 1), top_logprobs_=many(many(row(TOKEN, maybe(number())), 1000), NODES + 1),
                     kv_=fields(before=COUNT, after=COUNT, dropped=COUNT)),
    "text": fields(round=COUNT, pieces=many(fields(tok=TOKEN, b=encoded, span=row(COUNT, COUNT)), NODES + 1)),
    "timing": fields(round=COUNT, **{f"{name}_ns": COUNT for name in ("draft", "verify", "judge", "cache", "other")}),
    "lens": fields(round=COUNT, kind=LABEL, data=anything),
    "check": fields(kind=LABEL, detail_=anything),
    "stop": fields(why=LABEL),
    "error": fields(why=LABEL),
    "done": fields(finish=one_of("stop", "length", "stop_string", "stopped", "deadline", "context", "error"), totals=TOTALS,
                   peak_mem=maybe(COUNT)),
}
