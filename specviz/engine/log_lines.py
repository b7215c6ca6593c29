"""Log lines of bounded length. An exception is logged as one line; no traceback, because it may contain a
visitor's input, unless the owner sets SPECVIZ_DEBUG."""

from __future__ import annotations

import logging
import os
import time
import traceback

from .messages import shorten

LINE = 300
MINUTE = 60.0
FORMS = 1000  # of lines remembered
REPEATING = (
    "asyncio",
    "uvicorn.error",
    "specviz.serve.http_guard",
    "specviz.ui.page",
)  # loggers whose lines a client may cause


class LimitRepeats(logging.Filter):
    """Logs a line of one form once a minute; the next one counts those between. A traceback of a line that a
    client may cause is left out unless the owner sets SPECVIZ_DEBUG. clock: another one for tests."""

    def __init__(self, clock=time.monotonic):
        super().__init__()
        self._clock = clock
        self._lines: dict[tuple, list[float]] = {}  # form -> when it was logged, how many were not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a line."""
        error = record.exc_info[0] if record.exc_info else None
        form = record.name, str(record.msg)[:100], error
        logged, now = self._lines.get(form), self._clock()
        if logged and now - logged[0] < MINUTE:
            logged[1] += 1
            return False
        if len(self._lines) >= FORMS:
            self._lines.clear()
        self._lines[form] = [now, 0]
        words = shorten(record.getMessage(), LINE)
        if error and not os.environ.get("SPECVIZ_DEBUG"):
            words, record.exc_info, record.exc_text = f"{words}: {error.__name__}", None, None
        record.msg, record.args = (
            words + (f" ({logged[1]} more in between)" if logged and logged[1] else ""),
            (),
        )
        return True


def limit_repeats() -> None:
    """Bound the log of the server: see LimitRepeats."""
    for name in REPEATING:
        log = logging.getLogger(name)
        if not any(isinstance(one, LimitRepeats) for one in log.filters):
            log.addFilter(LimitRepeats())


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
