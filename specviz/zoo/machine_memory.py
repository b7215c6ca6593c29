"""Compare the memory that a model of models.yaml needs with the machine's total, without torch, before any
model is loaded. For the memory that is free now, see free_memory.py."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from .registry import Entry

GB = 10**9
OVERHEAD = 1.1  # factor for the KV cache and intermediate results
BITS = {"bnb-8bit": 8, "bnb-4bit": 4, "ao-int8": 8, "ao-int4": 4}
DRIVER_SECONDS = 5.0  # how long the driver may take to answer


def bytes_needed(entry: Entry, on_gpu: bool) -> float | None:
    """Return the bytes of memory that the entry needs on a GPU (if ``on_gpu``) or on a CPU, where weights
    have 32 bits; None if models.yaml gives no size."""
    if not entry.memory:
        return None
    return float(entry.memory) * GB * OVERHEAD * BITS.get(entry.quantise, 16 if on_gpu else 32) / 16


def too_large_message(entry: Entry) -> str:
    """Return a message if the entry exceeds this machine's total memory; empty if it fits, or if its size
    is unknown."""
    cards = gpu_memory()
    need = bytes_needed(entry, bool(cards))
    have = (sum(cards) if entry.device_map else max(cards)) if cards else main_memory()
    if need is None or have is None or need <= have:
        return ""
    return f"It needs about {need / GB:.1f} GB of memory; {'the card' if cards else 'this machine'} has {have / GB:.1f} GB."


@lru_cache(maxsize=1)
def gpus() -> tuple[tuple[str, int], ...]:
    """Return the name and the bytes of memory of each NVIDIA GPU, as the driver reports them; empty without
    one."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not shutil.which("nvidia-smi"):
        return ()
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=DRIVER_SECONDS,
            check=True,
        ).stdout
        rows = [line.split(",", 1) for line in answer.splitlines() if line.strip()]
        return tuple((name.strip(), int(memory) * 2**20) for memory, name in rows)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()


def gpu_memory() -> tuple[int, ...]:
    """Return the bytes of memory of each NVIDIA GPU; empty without one."""
    return tuple(memory for _, memory in gpus())


def main_memory() -> int | None:
    """Return the bytes of main memory that this process may use at most; None if unknown."""
    found = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        found += [int(most)] if most.isdigit() else []
    except OSError:
        pass
    return min(found, default=None)
