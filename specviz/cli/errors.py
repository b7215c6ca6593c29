"""How a command ends when it does not end well."""
from __future__ import annotations

from .messages import UsageError

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it

__all__ = ["INTERRUPTED", "UsageError"]
