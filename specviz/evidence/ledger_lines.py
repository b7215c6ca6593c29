"""Lines of a ledger: JSON Lines that grow by one line a measurement. A line is complete or does not count: a
process that was killed while it wrote leaves a part of one, which readers ignore and the next writer removes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..run.request import SessionError

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl


def read_rows(path: Path, data: bytes, opens: bytes, take: Callable[[Any], object]) -> int:
    """Call ``take`` with each row of a ledger's bytes; return the number of bytes of its complete lines.
    opens: start of every line, so that no other text is taken for a torn line. Raises SessionError for a
    line that is not of this ledger."""
    whole = 0
    for count, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b"\n") and (line.startswith(opens) or opens.startswith(line)):
            break
        try:
            take(json.loads(line.decode("utf-8") if line.startswith(opens) else ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise SessionError(f"Line {count} of {path} is no line of this ledger.", "ledger.line") from None
        whole += len(line)
    return whole


def rows_of(path: Path, opens: bytes) -> list[Any]:
    """Return the rows of a ledger; none if there is no file. opens, errors: see ``read_rows``."""
    rows: list[Any] = []
    read_rows(path, path.read_bytes() if path.exists() else b"", opens, rows.append)
    return rows


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a ledger that was read before. Writers take turns, where the system has locks of files,
    so that none takes a line that another one is writing for a torn one. A torn last line is removed."""
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    with path.open("a+b", buffering=0) as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)  # ends with the file, or with the process
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        if end and file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.readall().rfind(b"\n") + 1)
        while line:
            line = line[file.write(line) :]
