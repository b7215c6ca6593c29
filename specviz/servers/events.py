"""Parse a stream of server-sent events, each a JSON object. Anything else raises ServerError."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from .http_client import error_words
from .messages import ServerError

DEEPEST = 24  # levels of a message
LARGEST = 2**20  # bytes of a message, as of a line


def messages(name: str, lines: Iterable[bytes], most: int) -> Iterator[dict[str, Any]]:
    """Yield the messages up to [DONE]. name: the server's; most: maximum number of messages. Raises
    ServerError for a malformed message, an error object, too many messages, and a stream that ends inside a
    message. A stream that ends without [DONE] raises nothing; the caller decides about it."""
    data: list[bytes] = []
    count = size = 0
    for line in lines:
        size = size + len(line) if data else len(line)
        if size > LARGEST:
            raise ServerError("message_size", name=name, size=f"{LARGEST // 2**20} MB")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line.strip() and data:
            joined, data = b"\n".join(data), []
            if joined.strip() == b"[DONE]":
                return
            count += 1
            if count > most:
                raise ServerError("messages", name=name, count=most)
            yield _read(name, joined)
    if data and b"\n".join(data).strip() != b"[DONE]":
        raise ServerError("closed_in_message", name=name)


def _read(name: str, data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise ServerError("utf8", name=name) from None
    except (ValueError, RecursionError):
        raise ServerError("json", name=name) from None
    if not isinstance(message, dict) or _depth(message) > DEEPEST:
        raise ServerError("shape", name=name)
    words = error_words(message)
    if words:
        raise ServerError("error", name=name, why=words.rstrip("."))
    return message


def _refuse(word: str) -> None:
    raise ValueError(word)


def _depth(value: Any) -> int:
    """Return the nesting depth of plain data, without recursion; stops soon after DEEPEST."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        level = [
            one
            for item in level
            if isinstance(item, (dict, list))
            for one in (item.values() if isinstance(item, dict) else item)
        ]
        depth += 1
    return depth
