"""Read the response format of a request: the kind of structured output and its schema. Its size is limited
before it is compiled."""

from __future__ import annotations

import json
from typing import Any

from .errors import SessionError

FORMATS = ("text", "json_object", "json_schema", "regex", "choice", "lark")
SCHEMA_FIELDS = {
    "schema",
    "name",
    "description",
    "strict",
}  # of "json_schema"; all but the schema are OpenAI's, and change nothing
LONGEST_FORMAT = 65_536  # characters of a response format
DEEPEST_FORMAT = 64  # levels of a schema
MOST_CHOICES = 1000  # choices


def read_format(given: Any) -> dict[str, Any] | None:
    """Parse a response format: {"type": "json_schema", "json_schema": {"schema": {...}}}, {"type":
    "json_object"}, {"type": "regex", "regex": "..."}, {"type": "choice", "choice": [...]} or {"type":
    "lark", "lark": "..."}; None for {"type": "text"}. Raises SessionError."""
    if given is None:
        return None
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in FORMATS:
        raise SessionError(
            f"response_format is an object whose type is one of {', '.join(FORMATS)}.", "format.type"
        )
    if nesting(given) > DEEPEST_FORMAT:
        raise SessionError(f"response_format is nested deeper than {DEEPEST_FORMAT} levels.", "format.depth")
    try:
        length = len(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise SessionError("response_format is not plain JSON data.", "format.json") from None
    if length > LONGEST_FORMAT:
        raise SessionError(
            f"response_format has {length} characters; at most {LONGEST_FORMAT} are read.", "format.long"
        )
    schema = given.get("json_schema") if kind == "json_schema" else None
    inner = schema if isinstance(schema, dict) else {}
    unknown = [*(set(given) - {"type", kind}), *(set(inner) - SCHEMA_FIELDS)]
    if unknown:
        raise SessionError(
            f"response_format of type {kind} has no field {str(unknown[0])[:60]!r}.", "format.unknown"
        )
    if kind in ("text", "json_object"):
        return None if kind == "text" else {"type": kind}
    value = given.get(kind)
    if kind == "json_schema":
        schema = value.get("schema") if isinstance(value, dict) else None
        good = isinstance(schema, (dict, bool))
        want = '{"schema": a JSON schema}'
        value = {"schema": schema}
    elif kind == "choice":
        value, want = list(value) if isinstance(value, (list, tuple)) else [], f"1 to {MOST_CHOICES} texts"
        good = 0 < len(value) <= MOST_CHOICES and all(isinstance(x, str) and x for x in value)
    else:
        good, want = isinstance(value, str) and bool(value.strip()), "text"
    if not good:
        raise SessionError(
            f"response_format of type {kind} needs a field {kind} with {want}.", "format.field"
        )
    return {"type": kind, kind: value}


def nesting(value: Any, max_depth: int = DEEPEST_FORMAT) -> int:
    """Return the nesting depth of plain data, counted up to max_depth + 1."""
    level, depth = [value], 0
    while level and depth <= max_depth:
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list, tuple))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        depth += 1
    return depth
