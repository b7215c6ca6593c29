"""The log: one line a minute for what a client can repeat."""

from __future__ import annotations

import logging

from specviz.engine.log_lines import FORMS, LINE, MINUTE, LimitRepeats


def test_a_repeated_line_is_logged_once_a_minute_and_counted():
    clock = [0.0]
    limit = LimitRepeats(lambda: clock[0])

    def logged(words, *args, error=None):
        info = (type(error), error, error.__traceback__) if error else None
        record = logging.LogRecord("asyncio", logging.ERROR, "x.py", 1, words, args, info)
        return record.getMessage() if limit.filter(record) and not record.exc_info else None

    failure = OSError(24, "Too many open files")
    assert "OSError" in logged("socket.accept() out of system resource", error=failure)
    assert [logged("socket.accept() out of system resource", error=failure) for _ in range(2000)] == [
        None
    ] * 2000
    assert logged("%s was refused", "/a") and not logged("%s was refused", "/b")
    clock[0] = MINUTE
    assert "2000" in logged("socket.accept() out of system resource", error=failure)
    assert len(logged("y" * 30_000)) <= LINE + 1  # and the sign of what was cut
    for i in range(3 * FORMS):
        logged(f"form {i}")
    assert len(limit._lines) <= FORMS
