"""Whether an entry of models.yaml fits into a device's memory, told before a byte of it is fetched."""
from __future__ import annotations

import torch

from ..models import checkpoint_sizes as sizes
from .registry import Entry, ZooError
from .room import GB, bytes_of


def needed(entry: Entry, device: torch.device) -> float | None:
    """Bytes that the entry takes on the device; None when models.yaml does not say. A processor works in 32 bits."""
    return bytes_of(entry, device.type == "cuda")


def free(device: torch.device, every: bool = False) -> float | None:
    """Bytes that may still be allocated, on every card together where ``every``; None where nobody says."""
    if device.type == "cuda" and every:
        return float(sum(sizes.free(torch.device("cuda", card)) for card in range(torch.cuda.device_count())))
    return sizes.free(device)


def why_too_large(entry: Entry, device: torch.device) -> str | None:
    """One sentence when the entry does not fit, None when it does or nobody can tell."""
    need, have = needed(entry, device), free(device, bool(entry.device_map))
    if need is None or have is None or need <= have:
        return None
    return (f"{entry.name} needs about {need / GB:.1f} GB of memory and {have / GB:.1f} GB are free on {device}: nothing was fetched; "
            "choose a smaller model")


def need_room(entry: Entry, device: torch.device) -> None:
    """Raises ZooError where the entry does not fit."""
    problem = why_too_large(entry, device)
    if problem:
        raise ZooError(f"{problem}.")
