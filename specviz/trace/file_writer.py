"""Atomic file writing for the whole program: write next to the destination, fsync, rename. After a full
disk, a killed process or an error the old file is unchanged. Devices, pipes, folders, dangling links and
the input file itself are refused."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEXTS = {
    "write.dead_link": "is a link that leads to nothing",
    "write.special": "is not an ordinary file",
    "write.folder": "No such file or directory",
    "write.permission": "Permission denied",
    "write.same": "is the file that is read",
    "write.system": "{error}",
}


class WriteError(OSError):
    """A file cannot be written. ``strerror``: the reason; ``code``: the identifier of the message in
    TEXTS."""

    def __init__(self, code: str, path: Any, **values: Any):
        super().__init__(0, TEXTS[code].format(**values).rstrip("."), str(path)[:200])
        self.code = code


def check_place(path: str | Path, read: str | Path | None = None) -> Path:
    """Check that an ordinary file, existing or not, can be written at ``path``; return it with links
    followed. read: the input file, which must not be overwritten. Raises WriteError."""
    try:
        given = Path(path)
        place = given.resolve()
        mode = place.stat().st_mode if place.exists() else None
        code = (
            "write.dead_link"
            if given.is_symlink() and mode is None
            else "write.special"
            if mode is not None and not stat.S_ISREG(mode)
            else "write.folder"
            if not place.parent.is_dir()
            else "write.permission"
            if not os.access(place.parent, os.W_OK)
            else "write.same"
            if mode is not None and read is not None and Path(read).exists() and place.samefile(read)
            else ""
        )
    except (
        OSError,
        ValueError,
        RuntimeError,
        TypeError,
    ) as error:  # too long, a NUL in it, links in a circle, no path at all
        raise WriteError("write.system", path, error=getattr(error, "strerror", None) or error) from None
    if code:
        raise WriteError(code, path)
    return place


@contextmanager
def replacing(path: str | Path, read: str | Path | None = None) -> Iterator[Path]:
    """Context manager: a new file next to ``path``, to be written inside the block. After success it
    replaces ``path`` and gets the old file's mode; otherwise it is removed. read: see ``check_place``.
    Raises WriteError."""
    place = check_place(path, read)
    temporary, made = place.with_name(f".{secrets.token_hex(8)}.tmp"), False
    try:
        mode = 0o600 if place.exists() else 0o666  # an old file's mode is set at the end; nobody reads before
        os.close(
            os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        )  # new, so no link left there is followed
        made = True
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        if place.exists():
            temporary.chmod(stat.S_IMODE(place.stat().st_mode))
        temporary.replace(place)
        made = False
        _sync_folder(place.parent)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError("write.system", path, error=error.strerror or error) from None
    finally:
        if made:
            temporary.unlink(missing_ok=True)


def write_file(path: str | Path, data: str | bytes, read: str | Path | None = None) -> None:
    """Write a file atomically; after an error the old one is unchanged. Raises WriteError."""
    with replacing(path, read) as temporary:
        temporary.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "replace"))


def _sync_folder(folder: Path) -> None:
    """Fsync the folder, so that the rename is durable; not every file system supports it."""
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
