"""How a command ends when it does not end well."""
from __future__ import annotations

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it


class UsageError(ValueError):
    """What was typed makes no sense; one sentence."""
