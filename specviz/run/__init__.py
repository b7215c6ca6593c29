"""Run a method on loaded models and a prompt, and yield events; run several methods side by side."""

from .. import lazy_names

_WHERE = {
    "Session": "session",
    "race": "racing",
    "SessionError": "request",
    "Result": "result",
    "RunFailed": "result",
    "collect": "result",
}

__all__ = list(_WHERE)
__getattr__ = lazy_names(__name__, _WHERE)
