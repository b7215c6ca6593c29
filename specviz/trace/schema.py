"""The fields of every record of ``specviz-trace/1`` (docs/TRACE.md), as data.

A check is a function that is called with a value and a description of its position in the record, and
raises TraceError for an invalid value."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any

from ..core.errors import CodedError

Check = Callable[[Any, str], None]
BIG = 2**53  # largest integer that a JavaScript number holds exactly
LONGEST_TEXT = 1_000_000  # characters
LONGEST_LIST = 200_000  # items
DEEPEST = 12  # levels of nested data
PROMPT = 100_000  # characters of a prompt and its earlier turns
PIECE = 4096  # characters of a token's bytes in base64


class TraceError(CodedError, ValueError):
    """A trace is invalid."""


def whole_number(low: int = 0, high: int = BIG) -> Check:
    """Return a check for an integer from ``low`` to ``high``."""

    def check(value: Any, where: str) -> None:
        if type(value) is not int or not low <= value <= high:
            raise TraceError(f"{where} must be a whole number from {low} to {high}.", "trace.whole")

    return check


def number(low: float = -1e15, high: float = 1e15) -> Check:
    """Return a check for a finite number from ``low`` to ``high``."""

    def check(value: Any, where: str) -> None:
        if type(value) not in (int, float) or not low <= value <= high:  # NaN fails too
            raise TraceError(f"{where} must be a finite number from {low:g} to {high:g}.", "trace.number")

    return check


def text(most: int = LONGEST_TEXT) -> Check:
    """Return a check for text of at most ``most`` characters."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or len(value) > most:
            raise TraceError(f"{where} must be text of at most {most} characters.", "trace.text")

    return check


def one_of(*choices: str) -> Check:
    """Return a check for one of several texts."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or value not in choices:
            raise TraceError(f"{where} must be one of {', '.join(choices)}.", "trace.choice")

    return check


def nullable(inner: Check) -> Check:
    """Return a check that also allows null."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def list_of(inner: Check, most: int = LONGEST_LIST) -> Check:
    """Return a check for a list of at most ``most`` entries, each checked by ``inner``."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) > most:
            raise TraceError(f"{where} must be a list of at most {most} entries.", "trace.long_list")
        for i, one in enumerate(value):
            inner(one, f"{where}[{i}]")

    return check


def fixed_list(*inner: Check) -> Check:
    """Return a check for a list with as many entries as there are checks."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != len(inner):
            raise TraceError(f"{where} must be a list of {len(inner)} entries.", "trace.list_length")
        for one, each in zip(value, inner):
            each(one, where)

    return check


def fields(**inner: Check) -> Check:
    """Return a check for an object with these fields. A name that ends in ``_`` is optional; unknown fields
    (of later versions) are allowed if they are plain data."""
    needed = {name: check for name, check in inner.items() if not name.endswith("_")}
    known = {name.rstrip("_"): check for name, check in inner.items()}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise TraceError(f"{where} must be an object.", "trace.object")
        for name in needed:
            if name not in value:
                raise TraceError(f"{where} lacks {name}.", "trace.lacks")
        for name, one in value.items():
            known.get(name, plain_data)(one, f"{where}: {name[:40]}")

    return check


def plain_data(value: Any, where: str, depth: int = 0) -> None:
    """Check that a value is JSON data without cycles and without NaN or infinite numbers."""
    if depth > DEEPEST:
        raise TraceError(f"{where} is nested too deeply.", "trace.depth")
    if isinstance(value, dict):
        for one in value.values():
            plain_data(one, where, depth + 1)
    elif isinstance(value, list):
        for one in value:
            plain_data(one, where, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise TraceError(f"{where} must be finite.", "trace.not_finite")
    elif isinstance(value, int) and abs(value) > 2**64:
        raise TraceError(f"{where} is too large a number.", "trace.large_number")


def plain_object(value: Any, where: str) -> None:
    """Check that a value is an object of plain data."""
    if not isinstance(value, dict):
        raise TraceError(f"{where} must be an object.", "trace.object")
    plain_data(value, where)


def base64_bytes(value: Any, where: str) -> None:
    """Check that a value is bytes in base64."""
    if not isinstance(value, str) or len(value) > PIECE:
        raise TraceError(f"{where} must be bytes in base64, at most {PIECE} characters.", "trace.base64")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise TraceError(f"{where} must be bytes in base64.", "trace.base64") from None


def prompt_field(value: Any, where: str) -> None:
    """Check the prompt of a trace with its earlier turns."""
    _PROMPT(value, where)
    if len(value["text"]) + sum(len(turn["text"]) for turn in value["turns"]) > PROMPT:
        raise TraceError(f"{where}: a prompt and its turns hold at most {PROMPT} characters.", "trace.prompt")


def token_bytes_field(value: Any, where: str) -> None:
    """Check an object {"id": bytes} that gives the bytes of tokens."""
    if not isinstance(value, dict) or len(value) > LONGEST_LIST:
        raise TraceError(f"{where} must be an object of token bytes.", "trace.token_bytes")
    for name, one in value.items():
        if not (name.isascii() and name.isdigit() and len(name) <= 9):
            raise TraceError(f"{where} must be keyed by token ids.", "trace.token_ids")
        base64_bytes(one, where)


COUNT = whole_number()  # a count
SECONDS = number(0, 1e9)  # a time
TOKEN = whole_number(-1, 2**31)  # a token id, -1 if unknown
PROBABILITY = number(-1e-6, 1e6)  # a ratio too, and rounding
LABEL = text(2000)
DISTRIBUTION = list_of(fixed_list(TOKEN, PROBABILITY), 1000)
NODES = 4096

NODE = fields(
    id=whole_number(0, NODES),
    parent=whole_number(-1, NODES),
    depth=whole_number(1, NODES),
    tok=TOKEN,
    q=nullable(PROBABILITY),
    how=LABEL,
    top_=DISTRIBUTION,
    src_=fields(source=LABEL, start=COUNT, end=COUNT),
    probe_=plain_data,
    softmax_q_=nullable(PROBABILITY),
    top_softmax_=DISTRIBUTION,
)
_PROMPT = fields(
    text=text(PROMPT), ids=list_of(TOKEN), turns=list_of(fields(role=LABEL, text=text(PROMPT)), 1000)
)
HEADER = fields(
    schema=one_of("specviz-trace/1"),
    run_id=LABEL,
    created=LABEL,
    mode=one_of("live", "recorded", "simulated"),
    method=fields(
        key=LABEL,
        title=LABEL,
        family=LABEL,
        exactness=LABEL,
        paper=LABEL,
        summary=text(20_000),
        needs_=list_of(LABEL, 100),
    ),
    knobs=plain_object,
    prompt=prompt_field,
    sampling=fields(temperature=number(), top_k=COUNT, top_p=number(), seed=whole_number(-(2**63), 2**63)),
    max_new_tokens=COUNT,
    target=fields(name=LABEL),
    draft=nullable(fields(name=LABEL)),
    tokenizer=LABEL,
    env=plain_object,
    clock=one_of("engine", "client"),
    top_k_saved=COUNT,
    baseline_run_id=nullable(LABEL),
    answer_=fields(index=COUNT, of=COUNT),
    about_=fields(title=LABEL, text=LABEL),
    output_=fields(
        kind=LABEL,
        rows_=whole_number(1, 64),
        columns_=whole_number(1, 64),
        patch_=whole_number(1, 64),
        grids_=list_of(whole_number(1, 64), 16),
    ),
)
TOTALS = fields(
    **{
        f"{name}_": COUNT
        for name in ("tokens", "rounds", "drafted", "accepted", "tried", "text_bytes", "remembered")
    },
    **{
        f"{name}_": number()
        for name in (
            "seconds",
            "prefill_seconds",
            "draft_seconds",
            "verify_seconds",
            "judge_seconds",
            "cache_seconds",
            "other_seconds",
            "forward_seconds",
        )
    },
    by_position_=list_of(fixed_list(COUNT, COUNT), NODES),
    by_place_=list_of(fixed_list(COUNT, COUNT, COUNT, COUNT), 17),
)
SCHEMA: dict[str, Check] = {
    "header": HEADER,
    "vocab": fields(tokens=token_bytes_field, special=list_of(TOKEN)),
    "prefill": fields(t0=SECONDS, t1=SECONDS, n=COUNT),
    "draft": fields(round=COUNT, t0=SECONDS, t1=SECONDS, kind=LABEL, nodes=list_of(NODE, NODES)),
    "verify": fields(round=COUNT, t0=SECONDS, t1=SECONDS, n_in=COUNT),
    "judge": fields(
        round=COUNT,
        node=whole_number(0, NODES),
        rule=LABEL,
        p=nullable(PROBABILITY),
        q=nullable(PROBABILITY),
        a_=nullable(PROBABILITY),
        u=nullable(PROBABILITY),
        verdict=one_of("accepted", "rejected", "skipped"),
        top_p_=DISTRIBUTION,
        resid_=DISTRIBUTION,
        softmax_p_=nullable(PROBABILITY),
        top_softmax_=DISTRIBUTION,
    ),
    "commit": fields(
        round=COUNT,
        t=SECONDS,
        path=list_of(whole_number(0, NODES), NODES),
        n_new=whole_number(0, NODES + 1),
        tail=fields(
            tok=TOKEN,
            why=LABEL,
            p_=nullable(PROBABILITY),
            top_=DISTRIBUTION,
            softmax_p_=nullable(PROBABILITY),
            top_softmax_=DISTRIBUTION,
        ),
        logprobs_=list_of(nullable(number()), NODES + 1),
        top_logprobs_=list_of(list_of(fixed_list(TOKEN, nullable(number())), 1000), NODES + 1),
        kv_=fields(before=COUNT, after=COUNT, dropped=COUNT),
    ),
    "text": fields(
        round=COUNT,
        pieces=list_of(fields(tok=TOKEN, b=base64_bytes, span=fixed_list(COUNT, COUNT)), NODES + 1),
    ),
    "timing": fields(
        round=COUNT, **{f"{name}_ns": COUNT for name in ("draft", "verify", "judge", "cache", "other")}
    ),
    "lens": fields(round=COUNT, kind=LABEL, data=plain_object),
    "check": fields(kind=LABEL, detail_=plain_object),
    "stop": fields(why=LABEL),
    "error": fields(why=LABEL),
    "done": fields(
        finish=one_of("stop", "length", "stop_string", "stopped", "deadline", "context", "error"),
        totals=TOTALS,
        peak_mem=nullable(COUNT),
    ),
}
