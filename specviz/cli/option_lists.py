"""Lists in one option, as A,B,C."""
from __future__ import annotations

from .messages import UsageError


def split_list(words: str | None, option: str = "") -> list[str]:
    """Split a list; empty where the option is not given. Raises UsageError where it is given and names nothing."""
    found = [word.strip() for word in (words or "").split(",") if word.strip()]
    if option and words is not None and not found:
        raise UsageError("list.empty", option=option)
    return found


def method_keys(words: str) -> list[str]:
    """Return keys of the catalogue, each once; ``all`` is all of them. Raises UsageError."""
    from ..methods import catalogue
    from ..run.session import find_method

    found = list(catalogue()) if words.strip() == "all" else [find_method(key).key for key in split_list(words)]
    if not found:
        raise UsageError("methods.empty")
    return list(dict.fromkeys(found))
