"""A stream of server-sent events: lines in, messages out, each a JSON object. What is none ends it with a sentence."""
from __future__ import annotations

import json
from typing import Any, Iterable, Iterator

from .http_client import ServerError, error_words

DEEPEST = 24  # levels of a message


def messages(name: str, lines: Iterable[bytes], most: int) -> Iterator[dict[str, Any]]:
    """The messages up to [DONE]. Raises ServerError for what is no message, for an error that the server tells, for more than
    ``most`` of them, and where the stream ends inside one; that it ended without [DONE] is for the caller to judge."""
    data: list[bytes] = []
    count = 0
    for line in lines:
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line.strip() and data:
            told, data = b"\n".join(data), []
            if told.strip() == b"[DONE]":
                return
            count += 1
            if count > most:
                raise ServerError(f"{name} sent more than {most:,} messages: cut there.")
            yield _read(name, told)
    if data and b"\n".join(data).strip() != b"[DONE]":
        raise ServerError(f"{name} closed the connection inside a message.")


def _read(name: str, data: bytes) -> dict[str, Any]:
    try:
        told = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise ServerError(f"{name} sent bytes that are no UTF-8 text.") from None
    except (ValueError, RecursionError):
        raise ServerError(f"{name} sent something that is not JSON.") from None
    if not isinstance(told, dict) or _depth(told) > DEEPEST:
        raise ServerError(f"{name} sent a message of a form that is not known here.")
    words = error_words(told)
    if words:
        raise ServerError(f"{name} ended with an error: {words.rstrip('.')}.")
    return told


def _refuse(word: str) -> None:
    raise ValueError(word)


def _depth(value: Any) -> int:
    """How deep plain data is nested, without recursion; it ends soon after DEEPEST."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        level = [one for item in level if isinstance(item, (dict, list))
                 for one in (item.values() if isinstance(item, dict) else item)]
        depth += 1
    return depth
