"""Base classes of the engine's errors: a message for people, and an identifier for programs and tests.

The message is where the error is raised and may be reworded; the identifier is stable.
docs/reference/errors.md lists all of them.
"""

from __future__ import annotations

from typing import Any


class CodedError(Exception):
    """An error with a message and an identifier, such as "checkpoint.lacks_weight"."""

    def __init__(self, sentence: Any = "", code: str = ""):
        super().__init__(sentence)
        self.code = code


class InvalidUse(CodedError, ValueError):
    """A value or a combination of parts that cannot be used."""


def code_of(error: BaseException, default: str = "") -> str:
    """Return an error's identifier, or ``default`` for an error without one."""
    return getattr(error, "code", "") or default
