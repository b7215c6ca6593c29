"""Split files into parts that ordinary git hosts accept (at most 10 MB each), and join them again.

The parts of a safetensors shard are joined once, in a cache folder with links to the other files of the
model. A GGUF file is joined in memory when it is read (gguf_reader.py). llama.cpp splits a GGUF model its own
way, into files that are read one by one (``pieces_of``).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from .errors import ModelError

LARGEST = 10 * 2**20  # bytes: the largest file that git hosts accept without LFS
PART = 8_000_000  # bytes
HEADS = "heads"  # folder in a target's folder: the heads and drafts that were trained for it
MOST_PIECES = 1000  # GGUF files of a model
_PIECE = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")  # a name that llama-gguf-split gives
_PART = re.compile(r"(.+\.(?:safetensors|gguf))\.part-(\d{2})-of-(\d{2})")


def split_shards(folder: Path, largest: int = LARGEST, part: int = PART) -> None:
    """Replace every safetensors shard of more than ``largest`` bytes in a folder by parts of at most
    ``part`` bytes, and remove parts left from earlier shards."""
    for old in folder.glob("*.safetensors.part-*"):
        old.unlink()
    for shard in sorted(folder.glob("*.safetensors")):
        if shard.stat().st_size > largest:
            write_parts(shard, folder, part)
            shard.unlink()


def write_parts(file: Path, folder: Path, part: int = PART) -> None:
    """Write a file's bytes into ``folder`` as numbered parts of at most ``part`` bytes."""
    data = file.read_bytes()
    pieces = [data[at : at + part] for at in range(0, len(data), part)]
    for number, piece in enumerate(pieces, 1):
        (folder / f"{file.name}.part-{number:02d}-of-{len(pieces):02d}").write_bytes(piece)


def joined_folder(folder: Path) -> Path:
    """Return a folder with complete safetensors shards: the folder itself, or a cached copy in which the
    parts are joined. GGUF files stay in parts, because their reader joins them. Raises ModelError if a part
    is missing or the cache cannot be written."""
    shards = parts_of(folder, ".safetensors")
    if not shards:
        return folder
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        digest.update(f"{file.resolve()}\n".encode())
        if _PART.fullmatch(file.name):
            digest.update(file.read_bytes())
    place = cache_folder() / f"{folder.name}-{digest.hexdigest()[:12]}"
    if not place.is_dir():
        try:
            _join(folder, shards, place)
        except OSError as error:
            raise ModelError(
                f"{folder.name} lies in parts, and they cannot be joined in {place.parent}: {error.strerror}",
                "checkpoint.join",
            ) from None
    return place


def parts_of(folder: Path, ending: str) -> dict[str, list[Path]]:
    """Return {name of a split file: its parts in order} for the files of the folder whose names end in
    ``ending``. Raises ModelError if a part is missing."""
    found: dict[str, list[tuple[int, int, Path]]] = {}
    for file in folder.glob(f"*{ending}.part-*"):
        if match := _PART.fullmatch(file.name):
            found.setdefault(match[1], []).append((int(match[2]), int(match[3]), file))
    for shard, parts in found.items():
        parts.sort()
        if [number for number, *_ in parts] != list(range(1, parts[0][1] + 1)) or len(
            {of for _, of, _ in parts}
        ) > 1:
            raise ModelError(f"{folder.name} lacks a part of {shard}", "checkpoint.lacks_part")
    return {shard: [file for *_, file in parts] for shard, parts in found.items()}


def pieces_of(path: Path) -> list[Path]:
    """Return the files of the model that a GGUF file belongs to, in order: by their names, whether they exist
    or not."""
    match = _PIECE.fullmatch(path.name)
    if match is None or not 0 < int(match[3]) <= MOST_PIECES:
        return [path]
    return [path.with_name(f"{match[1]}-{at:05d}-of-{match[3]}.gguf") for at in range(1, int(match[3]) + 1)]


def model_name(name: str) -> str:
    """Return the name of a GGUF file without its ending and its number among several."""
    match = _PIECE.fullmatch(name)
    return match[1] if match else name.removesuffix(".gguf")


def _join(folder: Path, shards: dict[str, list[Path]], place: Path) -> None:
    """Build the joined folder under a temporary name and rename it to ``place``, so that two processes may
    do so at once."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as made:
        inner = Path(made) / "whole"
        inner.mkdir()
        for file in folder.iterdir():
            if not _PART.fullmatch(file.name):
                (inner / file.name).symlink_to(file.resolve())
        for shard, parts in shards.items():
            with (inner / shard).open("wb") as out:
                for part in parts:
                    out.write(part.read_bytes())
        try:
            inner.rename(place)
        except OSError:
            if not place.is_dir():
                raise


def cache_folder() -> Path:
    """Return the folder of joined shards: under the home's cache if that is writable, else one of this user's
    own under the temporary folder."""
    home = Path.home() / ".cache"
    writable = home if home.is_dir() else home.parent
    return (home if os.access(writable, os.W_OK) else _private_folder()) / "specviz" / "models"


def _private_folder() -> Path:
    """Return a folder below the temporary one in which nobody else writes: weights that another user laid
    there would be read as ours."""
    if not hasattr(os, "getuid"):
        return Path(tempfile.gettempdir())  # the user's own on Windows
    folder = Path(tempfile.gettempdir()) / f"specviz-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return folder
    return _folder_of_this_process()


@lru_cache(maxsize=1)
def _folder_of_this_process() -> Path:
    return Path(tempfile.mkdtemp(prefix="specviz-"))


def gguf_digest(folder: Path) -> tuple[str, str] | None:
    """Return (SHA-256, file name) of a GGUF file that a folder describes by ``NAME.gguf.sha256`` ("digest
    name", as sha256sum writes it) but does not contain; None if there is none."""
    found = next(iter(folder.glob("*.gguf.sha256")), None) if folder.is_dir() else None
    words = found.read_text(encoding="utf-8").split() if found else []
    return (words[0].lower(), words[1].lstrip("*")) if len(words) == 2 else None


def fetched_copy(folder: Path) -> Path | None:
    """Return the cache folder for a copy of this folder together with its downloaded GGUF file; None for a
    folder without a digest."""
    digest = gguf_digest(folder)
    return cache_folder() / f"{folder.name}-{digest[0][:12]}" if digest else None


def has_weights(folder: Path) -> bool:
    """Return whether a folder has weights, whole or in parts. A path to a file counts as weights."""
    return (
        folder.is_file()
        or folder.is_dir()
        and any(
            file.suffix in (".safetensors", ".gguf") or ".part-" in file.name for file in folder.iterdir()
        )
    )
