"""Check that an entry of models.yaml fits into a device's free memory, before any byte of it is fetched."""

from __future__ import annotations

import torch

from ..checkpoints import sizes
from .machine_memory import GB, bytes_needed
from .registry import Entry, ZooError


def needed_bytes(entry: Entry, device: torch.device) -> float | None:
    """Return the bytes of memory that the entry needs on the device; None if models.yaml gives no size."""
    return bytes_needed(entry, device.type == "cuda")


def free_bytes(device: torch.device, all_gpus: bool = False) -> float | None:
    """Return the bytes that can still be allocated on the device; all_gpus: on all GPUs together. None if
    unknown."""
    if device.type == "cuda" and all_gpus:
        return float(
            sum(
                sizes.free_bytes(torch.device("cuda", card)) or 0 for card in range(torch.cuda.device_count())
            )
        )
    return sizes.free_bytes(device)


def too_large_reason(entry: Entry, device: torch.device) -> str | None:
    """Return why the entry does not fit into free memory; None if it fits, or if its size is unknown."""
    need, have = needed_bytes(entry, device), free_bytes(device, bool(entry.device_map))
    if need is None or have is None or need <= have:
        return None
    return (
        f"{entry.name} needs about {need / GB:.1f} GB of memory and {have / GB:.1f} GB are free on {device}: nothing was fetched; "
        "choose a smaller model"
    )


def require_memory(entry: Entry, device: torch.device) -> None:
    """Raise ZooError if the entry does not fit into free memory."""
    problem = too_large_reason(entry, device)
    if problem:
        raise ZooError(f"{problem}.", "checkpoint.memory")
