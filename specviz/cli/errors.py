"""Exit statuses and messages of commands that fail."""

from __future__ import annotations

from ..core.errors import code_of
from .messages import UsageError

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it
FAILED = 1
WRONG_USAGE = 2
# Identifiers of errors of the engine that say that an argument of the command is wrong.
ARGUMENTS = (
    "bench.minutes",
    "device.unknown",
    "format.",
    "knob.",
    "lab.",
    "ledger.read",
    "load.rate",
    "method.unknown",
    "model.no_file",
    "model.unknown",
    "model.unpinned",
    "picture.",
    "prompt.empty",
    "prompt.long",
    "request.",
    "sampling.min_p",
    "sampling.number",
    "sampling.temperature",
    "sampling.top_",
    "server.unknown",
    "session.knob_limit",
    "suite.",
    "trace.read",
)

__all__ = ["FAILED", "INTERRUPTED", "WRONG_USAGE", "UsageError", "status_of"]


def status_of(error: BaseException) -> int:
    """Return the exit status for an error: 2 if an argument is wrong, else 1."""
    wrong = isinstance(error, UsageError) or code_of(error).startswith(ARGUMENTS)
    return WRONG_USAGE if wrong else FAILED
