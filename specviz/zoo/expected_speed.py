"""Estimate the decoding speed of a model of models.yaml on a CPU before it is fetched or loaded. Without
torch."""

from __future__ import annotations

import time
from functools import lru_cache

from .machine_memory import GB, OVERHEAD, bytes_needed, gpu_memory, gpus
from .registry import Entry

BLOCK = 64 * 2**20  # bytes that are copied to measure the memory; larger than a processor's cache
COPIES = 3


@lru_cache(maxsize=1)
def memory_bandwidth() -> float:
    """Measure the bytes per second, read plus written, that one core moves: the best of a few copies."""
    source, into = memoryview(bytearray(BLOCK)), memoryview(bytearray(BLOCK))
    best = float("inf")
    for _ in range(COPIES):
        began = time.perf_counter()
        into[:] = source
        best = min(best, time.perf_counter() - began)
    return 2 * BLOCK / max(best, 1e-6)


def tokens_per_second(entry: Entry) -> float | None:
    """Return the expected speed of plain decoding on a CPU: each token reads every weight once. None with a
    GPU, or if models.yaml gives no size."""
    need = bytes_needed(entry, on_gpu=False)
    return None if need is None or gpu_memory() else memory_bandwidth() / (need / OVERHEAD)


def round_speed(rate: float) -> str:
    """Return an estimate as text: one digit below 10, else in steps of five."""
    return f"{rate:.1g}" if rate < 10 else str(5 * round(rate / 5))


def largest_gpu() -> tuple[str, str] | None:
    """Return the name and the memory in GB, as text, of the largest GPU; None without one."""
    if not gpus():
        return None
    name, memory = max(gpus(), key=lambda gpu: gpu[1])
    return name, f"{memory / GB:.0f}"
