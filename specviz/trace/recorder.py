"""Convert events to trace records (docs/TRACE.md), numbered per lane. The bytes of every token are recorded
before its first use.

Token ids are found by the names of the fields that hold them; notes that use these names have their tokens
recorded, too: ``tok`` and ``tokens`` hold ids (in lists of any depth), ``top``, ``top_p``, ``top_softmax``
and ``resid`` hold [id, probability] pairs, ``top_logprobs`` a list of such lists.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

from .events import Event


class Recorder:
    """Converts the events of one lane to trace records. token_bytes(id): a token's bytes, None if unknown;
    special: ids of control tokens."""

    def __init__(
        self, lane: int, token_bytes: Callable[[int], bytes] | None, special: frozenset[int] = frozenset()
    ):
        self._lane = lane
        self._token_bytes = token_bytes
        self._special = special
        self._known_tokens: set[int] = set()
        self._seq = 0

    def take(self, event: Event) -> list[dict[str, Any]]:
        """Return the records of one event, JSON-ready; non-finite numbers become null."""
        out: list[dict[str, Any]] = []
        for record in event.records():
            record = without_nonfinite(record)
            header = record["type"] == "header"
            ids = () if self._token_bytes is None else record["prompt"]["ids"] if header else _named(record)
            new = [i for i in dict.fromkeys(ids) if i >= 0 and i not in self._known_tokens]
            vocab = [self._number(self._vocab(new))] if new and not header else []
            out += [*vocab, self._number(record)]
            if new and header:  # a trace begins with its header; the prompt's tokens follow at once
                out.append(self._number(self._vocab(new)))
        return out

    def _vocab(self, ids: list[int]) -> dict[str, Any]:
        self._known_tokens.update(ids)
        assert self._token_bytes is not None  # else no id is named
        tokens = {str(i): b64encode(self._token_bytes(i)).decode() for i in ids}
        return {"type": "vocab", "tokens": tokens, "special": [i for i in ids if i in self._special]}

    def _number(self, record: dict[str, Any]) -> dict[str, Any]:
        numbered = {"type": record["type"], "seq": self._seq, "lane": self._lane, **record}
        self._seq += 1
        return numbered


def _named(value: Any, key: str = "", listed: bool = False) -> Iterator[int]:
    """Yield every token id in a record. (A bare number called ``tokens`` is a count.)"""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _named(inner, name)
    elif isinstance(value, (list, tuple)):
        if key == "top_logprobs":
            yield from (int(pair[0]) for top in value if isinstance(top, (list, tuple)) for pair in top)
        elif key in ("top", "top_p", "top_softmax", "resid"):
            yield from (int(pair[0]) for pair in value if isinstance(pair, (list, tuple)) and pair)
        else:
            for inner in value:
                yield from _named(inner, key, listed=True)
    elif (
        (key == "tok" or (key == "tokens" and listed))
        and isinstance(value, int)
        and not isinstance(value, bool)
    ):
        yield value


def without_nonfinite(value: Any) -> Any:
    """Return plain data with tuples replaced by lists, and NaN and infinite numbers by None."""
    if isinstance(value, dict):
        return {str(k): without_nonfinite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nonfinite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
