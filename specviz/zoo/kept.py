"""Weights are read once per folder, device and use, and shared by every run from then on."""
from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable

import torch

from ..models.linear import without_timing
from .registry import ZooError

_loaded: dict[tuple[Path, str, str], Any] = {}
_lock = threading.Lock()


def once(folder: Path, device: torch.device, use: str, read_them: Callable[[Path, torch.device], Any], fixed: bool = False) -> Any:
    """The folder's weights on a device for one use (a forward, a head), loaded once; fixed: no clock chooses how a processor stores
    them. Raises ZooError."""
    fixed = fixed and device.type == "cpu"
    key = (folder.resolve(), str(device), f"{use}, fixed" if fixed else use)
    with _lock:
        if key not in _loaded:
            try:
                with without_timing() if fixed else nullcontext():
                    _loaded[key] = read_them(folder, device)
            except (MemoryError, torch.OutOfMemoryError):
                raise ZooError(f"{folder.name} does not fit into the memory of {device}.") from None
            except Exception as error:  # a foreign folder breaks in any way it likes
                words = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
                raise ZooError(f"{words}." if folder.name in words else f"{folder.name} cannot be loaded: {words}.") from None
        return _loaded[key]


def forget() -> None:
    """Give back every weight that no run holds."""
    with _lock:
        _loaded.clear()
