"""Log lines of bounded length. An exception is logged as one line; no traceback, because it may contain a
visitor's input, unless the owner sets SPECVIZ_DEBUG."""

from __future__ import annotations

import logging
import os
import traceback

from .messages import shorten

LINE = 300


def log_failure(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log one line: what failed, the error's type and message, and the file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "specviz" in frame.filename] or frames
    place = f" at {ours[-1].filename.rpartition('specviz/')[2]}:{ours[-1].lineno}" if ours else ""
    log.error(
        "%s: %s: %s%s",
        what,
        type(error).__name__,
        shorten(str(error), LINE - 100),
        place,
        exc_info=error if os.environ.get("SPECVIZ_DEBUG") else None,
    )
