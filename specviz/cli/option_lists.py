"""Read an option that is a list, such as A,B,C."""

from __future__ import annotations

from .messages import UsageError


def split_list(words: str | None, option: str = "") -> list[str]:
    """Split an option's value at commas; empty if the option is not given. option: its name for the
    message. Raises UsageError if it is given but empty."""
    found = [word.strip() for word in (words or "").split(",") if word.strip()]
    if option and words is not None and not found:
        raise UsageError("list.empty", option=option)
    return found


def method_keys(words: str) -> list[str]:
    """Return the method keys in a list such as "A,B,C", without duplicates; "all" stands for all methods.
    Raises UsageError."""
    from ..methods import catalogue
    from ..run.session import find_method

    found = (
        list(catalogue()) if words.strip() == "all" else [find_method(key).key for key in split_list(words)]
    )
    if not found:
        raise UsageError("methods.empty")
    return list(dict.fromkeys(found))
