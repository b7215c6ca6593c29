"""Exit statuses and messages of commands that fail."""

from __future__ import annotations

from .messages import UsageError

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it

__all__ = ["INTERRUPTED", "UsageError"]
