"""The folder in which numba keeps the machine code of the kernels between runs.

numba decides by one file's time of change whether its code is still valid. Here the folder's name holds a
hash of every source that the code is made of, of the instruction set, and of numba's version, so that code
of other sources is never read.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from numba.core import ccallback, config, dispatcher
from numba.core.caching import FunctionCache

from .progress import PROGRESS
from .vector import ISA

PROGRESS.listen()

SOURCES = ("cache.py", "llama_pass.py", "row_functions.py", "vector.py")


def _base() -> Path:
    """Return the user's folder for caches."""
    if os.environ.get("SPECVIZ_CACHE"):
        return Path(os.environ["SPECVIZ_CACHE"])
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "specviz"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "specviz"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specviz"


@lru_cache(maxsize=1)
def kernel_cache() -> Path | None:
    """Return the folder of the compiled kernels, created if needed; None if it cannot be written or others may
    write there, so that kernels are compiled at every start."""
    here = Path(__file__).parent
    key = hashlib.sha256()
    for name in SOURCES:
        key.update((here / name).read_bytes())
    key.update(f"{ISA} {numba.__version__} {sys.version_info[:2]}".encode())
    try:
        folder = _base() / "kernels" / key.hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder if _is_own(folder) else None
    except (OSError, RuntimeError):  # read-only, or no home folder
        return None


class _OwnCache(FunctionCache):
    """numba's cache of one function, which a damaged file or a full disk does not stop: the function is then
    compiled anew, or not kept."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever a pickle that is cut short raises
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)


def _is_own(folder: Path) -> bool:
    """Return whether nobody but this user writes in a folder: what numba reads there is pickles."""
    found = folder.stat()
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def in_cache_folder(compile_with: Callable[[bool], Any]) -> Any:
    """Return ``compile_with(cache)``, called while numba's cache is the kernels' own folder; ``cache``:
    whether there is one."""
    folder, settings = kernel_cache(), config.__dict__
    before = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = "" if folder is None else str(folder)
    try:
        for module in (dispatcher, ccallback):
            vars(module)["FunctionCache"] = _OwnCache
        return compile_with(folder is not None)
    finally:
        for module in (dispatcher, ccallback):
            vars(module)["FunctionCache"] = FunctionCache
        settings["CACHE_DIR"] = before


def is_cached() -> bool:
    """Return whether compiled kernels are on disk."""
    folder = kernel_cache()
    return folder is not None and any(folder.rglob("*.nbc"))
