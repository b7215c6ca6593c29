"""Output files of commands: written atomically (trace.file_writer), with the command line's own error messages."""
from __future__ import annotations

from pathlib import Path

from ..trace.file_writer import WriteError, check_place, write_file
from .messages import UsageError


def check_output(path: str | Path, read: str | Path | None = None) -> None:
    """Check that a file can be written, before anything is computed for it. read: the input file, which must be another one.
    Raises UsageError."""
    try:
        check_place(path, read)
    except WriteError as error:
        raise write_refused(path, error) from None


def write_output(path: str | Path, data: str | bytes, read: str | Path | None = None) -> None:
    """Write a file atomically; after an error the old file is unchanged. read: the input file, which is never overwritten. Raises
    UsageError."""
    try:
        write_file(path, data, read)
    except WriteError as error:
        raise write_refused(path, error) from None


def write_refused(path: str | Path, error: WriteError) -> UsageError:
    """Return the UsageError for a file that cannot be written."""
    if error.code == "write.same":
        return UsageError("file.same", path=str(path)[:200])
    return UsageError("file.write", path=str(path)[:200], why=error.strerror)
