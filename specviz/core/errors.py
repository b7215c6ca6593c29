"""The base of the engine's errors: one sentence for a person, and an identifier for programs and tests.

The sentence stands where the error is raised and may be reworded; the identifier stays. docs/reference/errors.md lists all of them.
"""
from __future__ import annotations

from typing import Any


class CodedError(Exception):
    """One sentence and its identifier, such as "checkpoint.lacks_weight"."""

    def __init__(self, sentence: Any = "", code: str = ""):
        super().__init__(sentence)
        self.code = code


class InvalidUse(CodedError, ValueError):
    """A value or a combination of parts that cannot be used."""


def code_of(error: BaseException, default: str = "") -> str:
    """Return an error's identifier, or ``default`` for an error without one."""
    return getattr(error, "code", "") or default
