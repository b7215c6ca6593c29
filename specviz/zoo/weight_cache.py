"""Load weights once per folder, device and use, and share them between runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from ..checkpoints.errors import about_files
from ..core.errors import code_of
from ..models.linear import without_timing
from .registry import ZooError

_loaded: dict[tuple[Path, str, str], Any] = {}
_lock = threading.Lock()


def load_once(
    folder: Path,
    device: torch.device,
    purpose: str,
    read: Callable[[Path, torch.device], Any],
    fixed_layout: bool = False,
) -> Any:
    """Return a folder's weights on a device for one purpose (a forward pass, a head). They are read by
    ``read(folder, device)`` on the first call. Raises ZooError.

    fixed_layout: use a fixed memory layout of the weights on a CPU, instead of the fastest one by
    measurement."""
    fixed_layout = fixed_layout and device.type == "cpu"
    key = (folder.resolve(), str(device), f"{purpose}, fixed" if fixed_layout else purpose)
    with _lock:
        if key not in _loaded:
            try:
                with without_timing() if fixed_layout else nullcontext():
                    _loaded[key] = read(folder, device)
            except (MemoryError, torch.OutOfMemoryError):
                raise ZooError(
                    f"{folder.name} does not fit into the memory of {device}.", "memory.device"
                ) from None
            except Warning:  # -W error: a library's warning says nothing about the model
                raise
            except Exception as error:  # a downloaded folder can be broken in any way
                words = about_files(folder, error).rstrip(".")
                raise ZooError(
                    f"{words}." if folder.name in words else f"{folder.name} cannot be loaded: {words}.",
                    code_of(error, "model.load"),
                ) from None
        return _loaded[key]


def forget() -> None:
    """Drop the cached weights; those still used by a run are freed when it ends."""
    with _lock:
        _loaded.clear()
