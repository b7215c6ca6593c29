"""Describe an output's bytes to a person, by the header's field ``output``: the text itself, or one line
about the picture."""

from __future__ import annotations

from typing import Any


def is_text(output: dict[str, Any] | None) -> bool:
    """Return whether an output is UTF-8 text; True if the trace has no field ``output``."""
    return not output or output.get("kind", "text") == "text"


def describe(output: dict[str, Any] | None, data: bytes) -> str:
    """Return the output as text: the text itself, or for a picture how much of it there is."""
    if is_text(output):
        return data.decode("utf-8", "replace")
    assert output is not None
    patch = 3 * output.get("patch", 1) ** 2
    whole = sum(grid * grid for grid in output.get("grids", ())) or output.get("rows", 0) * output.get(
        "columns", 0
    )
    return f"[a picture, {len(data) // patch} of {whole} patches]"
