"""Run a method on loaded models and a prompt, and yield events; run several methods side by side."""

from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from .racing import race
    from .request import GenerationRequest, SessionError
    from .result import Result, RunFailed, collect
    from .session import Session


_WHERE = {
    "Session": "session",
    "race": "racing",
    "GenerationRequest": "request",
    "SessionError": "request",
    "Result": "result",
    "RunFailed": "result",
    "collect": "result",
}

__all__ = ["GenerationRequest", "Result", "RunFailed", "Session", "SessionError", "collect", "race"]
if not TYPE_CHECKING:  # so that a type checker reports names that do not exist
    __getattr__ = lazy_names(__name__, _WHERE)
