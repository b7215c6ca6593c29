"""Lists in one word, as options have them: A,B,C."""
from __future__ import annotations

from .errors import UsageError


def listed(words: str | None) -> list[str]:
    return [word.strip() for word in (words or "").split(",") if word.strip()]


def keys(words: str) -> list[str]:
    """Keys of the catalogue, each once; ``all`` is all of them. Raises UsageError."""
    from ..methods import catalogue
    from ..run.session import find_method

    found = list(catalogue()) if words.strip() == "all" else [find_method(key).key for key in listed(words)]
    if not found:
        raise UsageError("No method is named; give keys of the list, or all.")
    return list(dict.fromkeys(found))
