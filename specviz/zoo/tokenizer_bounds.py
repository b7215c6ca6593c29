"""Refuse a tokenizer.json that would take minutes or all memory: the package ``tokenizers`` has no bounds of its own,
and a failed allocation ends the process."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

MOST_ADDED = 20_000  # added tokens
MOST_GROWTH = 64.0  # times a text may grow by replacements
LONGEST_TEXT = 1000  # characters that a step may put before or between texts


def tokenizer_problem(stored: dict[str, Any]) -> str:
    """Return what is too much in the contents of a tokenizer.json, as the end of a sentence; "" if nothing is."""
    added = stored.get("added_tokens")
    if isinstance(added, list) and len(added) > MOST_ADDED:
        return f"it adds {len(added):,} tokens, and at most {MOST_ADDED:,} are read"
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        steps = list(_steps(stored.get(part)))
        if prod(max(1.0, growth) for growth, _ in steps) > MOST_GROWTH:
            return f"its {part} makes a text more than {MOST_GROWTH:.0f} times as long"
        if any(length > LONGEST_TEXT for _, length in steps):
            return f"its {part} inserts more than {LONGEST_TEXT} characters"
    return ""


def _steps(part: Any) -> Iterator[tuple[float, int]]:
    """Yield for each step how many times as long it makes a text, and the characters that it inserts."""
    if isinstance(part, list):
        for one in part:
            yield from _steps(one)
    if not isinstance(part, dict):
        return
    inserted = [part.get(name) for name in ("content", "prepend", "replacement")]
    length = max((len(text) for text in inserted if isinstance(text, str)), default=0)
    replaced = part.get("pattern", {})
    replaced = replaced.get("String") if isinstance(replaced, dict) else None
    shortest = len(replaced) if isinstance(replaced, str) and replaced else 1
    yield (length / shortest if part.get("type") in ("Replace", "Metaspace") else 1.0), length
    for name, inner in part.items():
        if name != "pattern":
            yield from _steps(inner)
