"""Output files of commands: written atomically (trace.file_writer), with the command line's own error
messages."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..trace.file_writer import WriteError, check_place, write_file
from .messages import UsageError


class FileText(str):
    """A text that was read from a file. path: the file's."""

    path: str


def check_output(path: str | Path, read: str | Path | None = None) -> None:
    """Check that a file can be written, before anything is computed for it. read: the input file, which
    must be another one. Raises UsageError."""
    try:
        check_place(path, read)
    except WriteError as error:
        raise write_refused(path, error) from None


def write_output(path: str | Path, data: str | bytes, read: str | Path | None = None) -> None:
    """Write a file atomically; after an error the old file is unchanged. read: the input file, which is
    never overwritten. Raises UsageError."""
    try:
        write_file(path, data, read)
    except WriteError as error:
        raise write_refused(path, error) from None


def write_refused(path: str | Path, error: WriteError) -> UsageError:
    """Return the UsageError for a file that cannot be written."""
    if error.code == "write.same":
        return UsageError("file.same", path=str(path)[:200])
    return UsageError("file.write", path=str(path)[:200], why=error.strerror)


WRITES = ("trace", "save", "out", "html", "chrome", "csv", "parquet")  # options that name a file to write
READS = (
    "predicted",
    "request",
    "image",
    "suite",
    "table",
    "into",
    "model",
    "target",
    "draft",
)  # files and folders that are read


def check_files(args: argparse.Namespace, sources: Iterable[Path] = ()) -> None:
    """Check all files that a command will write, before anything is computed: that they can be written,
    that none is read by the same command or belongs to a model that is, and that none is named twice.
    sources: further files and folders that it reads. Raises UsageError."""
    given = vars(args)
    replays = {"trace"} if "html" in given else set()  # replay reads a trace
    writes, reads = [name for name in WRITES if name not in replays], (*READS, *replays)
    sources = [*sources] + [source for name in reads for source in _paths(given.get(name)) if _exists(source)]
    written: list[Path] = []
    for place in (place for name in writes for place in _paths(given.get(name))):
        check_output(place)
        if any(
            _same(place, source)
            or source.is_dir()
            and place.exists()
            and place.resolve().is_relative_to(source.resolve())
            for source in sources
        ):
            raise UsageError("file.same", path=str(place)[:200])
        if any(_same(place, other) for other in written):
            raise UsageError("file.twice", path=str(place)[:200])
        written.append(place)


def _paths(value: Any) -> list[Path]:
    """Return the paths that the value of an option names: a text, several, or a text that was read from a
    file."""
    if isinstance(value, (list, tuple)):
        return [path for one in value for path in _paths(one)]
    if isinstance(value, FileText):
        return [Path(value.path)]
    return [Path(value.removeprefix("@"))] if isinstance(value, str) and value and "\0" not in value else []


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no path: a request as JSON may be longer than a name
        return False


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other) if one.exists() and other.exists() else one.resolve() == other.resolve()
    except (OSError, RuntimeError):  # no path at all: an option that takes a name, too
        return False
