"""What the bytes of an output are to a person, by the header's field ``output``: its text, or a line about the picture."""
from __future__ import annotations

from typing import Any


def is_text(output: dict[str, Any] | None) -> bool:
    """Return whether an output's bytes are UTF-8; those of a trace without the field are."""
    return not output or output.get("kind", "text") == "text"


def describe(output: dict[str, Any] | None, data: bytes) -> str:
    """Return text itself, and for a picture how much of it there is."""
    if is_text(output):
        return data.decode("utf-8", "replace")
    assert output is not None
    patch = 3 * output.get("patch", 1) ** 2
    return f"[a picture, {len(data) // patch} of {output.get('rows', 0) * output.get('columns', 0)} patches]"
