"""A run: a loaded target, a method with its knobs and a prompt in, events out; and a race of several."""
from .. import later

_WHERE = {"Session": "session", "race": "racing", "SessionError": "request", "Result": "result", "RunFailed": "result",
          "collect": "result"}

__all__ = list(_WHERE)
__getattr__ = later(__name__, _WHERE)
