"""How much memory a model of models.yaml takes and how much there is at all: from files and one question to the driver, without torch,
so that a page can be drawn by it before anything is loaded."""
from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from .registry import Entry

GB = 10**9
ROOM = 1.1  # keys and values, and what a forward holds on its way
BITS = {"bnb-8bit": 8, "bnb-4bit": 4, "ao-int8": 8, "ao-int4": 4}
PATIENCE = 5.0  # seconds for the driver's answer


def bytes_of(entry: Entry, card: bool) -> float | None:
    """What the entry takes on a card, or on a processor, which works in 32 bits; None when models.yaml does not say."""
    if not entry.memory:
        return None
    return float(entry.memory) * GB * ROOM * BITS.get(entry.quantise, 16 if card else 32) / 16


def too_large(entry: Entry) -> str:
    """A sentence where the entry can never fit into this machine's memory, empty where it can or nobody can tell."""
    cards = card_memory()
    need = bytes_of(entry, bool(cards))
    have = (sum(cards) if entry.device_map else max(cards)) if cards else processor_memory()
    if need is None or have is None or need <= have:
        return ""
    return f"It needs about {need / GB:.1f} GB of memory; {'the card' if cards else 'this machine'} has {have / GB:.1f} GB."


@lru_cache(maxsize=1)
def card_memory() -> tuple[int, ...]:
    """Bytes of each NVIDIA card, as the driver says; empty where there is none."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not shutil.which("nvidia-smi"):
        return ()
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=PATIENCE, check=True).stdout
        return tuple(int(line) * 2**20 for line in said.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()


def processor_memory() -> int | None:
    """Bytes of main memory that this process may ever have; None where nobody says."""
    found = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        found += [int(most)] if most.isdigit() else []
    except OSError:
        pass
    return min(found, default=None)
