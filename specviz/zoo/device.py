"""The machine: devices, the number of threads, and the facts that are reported with a measurement."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .. import VERSION
from ..core.threads import set_thread_count, thread_count
from .registry import ZooError

log = logging.getLogger(__name__)


def read_device(device: str) -> torch.device:
    """Return the torch device with this name; "auto" is the accelerator if there is one, else the CPU.
    Raises ZooError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(str(device))
    except (RuntimeError, TypeError):
        raise ZooError(
            f"There is no device {str(device)[:40]!r}; auto, cpu and cuda are known.", "device.unknown"
        ) from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ZooError("There is no accelerator here; use --device cpu.", "device.no_accelerator")
    if found.type not in ("cpu", "cuda"):
        raise ZooError(
            f"There is no device {str(device)[:40]!r} here; auto, cpu and cuda are known.", "device.unknown"
        )
    return found


def use_cores(ignore_load: bool = False) -> None:
    """Use one thread per physical core, unless OMP_NUM_THREADS is set; a single thread if other processes
    keep the cores busy.

    All threads wait for the slowest: on busy cores a forward pass of 5 ms can take 500 ms. ignore_load:
    always one thread per core, for deterministic runs, because sums with two threads round differently."""
    if not os.environ.get("OMP_NUM_THREADS"):
        cores = physical_cores()
        busy = cores > 1 and not ignore_load and hasattr(os, "getloadavg") and os.getloadavg()[0] > cores
        if busy:
            log.warning(
                "Other processes keep the cores busy, so one thread is used; times are those of one thread. "
                "OMP_NUM_THREADS=%d asks for all.",
                cores,
            )
        set_thread_count(1 if busy else cores)


def fit_threads(measure: Callable[[], float], compiled: bool = False, long: float = 0.2) -> tuple[int, float]:
    """Use one thread or one per core, whichever makes ``measure()`` smaller, the seconds of a forward pass.
    compiled: as in ``set_thread_count``. Return (threads, seconds).

    A browser that renders on the same cores can make two threads slower than one. The number stays as it is
    if OMP_NUM_THREADS is set, with an accelerator, or if a pass takes more than ``long`` seconds."""
    now = thread_count()
    cores = physical_cores()
    set_thread_count(now, compiled)
    took = {now: measure()}
    if os.environ.get("OMP_NUM_THREADS") or torch.cuda.is_available() or took[now] > long:
        return now, took[now]
    for count in {1, cores} - {now}:
        set_thread_count(count, compiled)
        took[count] = measure()
    best = min(took, key=took.__getitem__)
    set_thread_count(best, compiled)
    return best, took[best]


def physical_cores() -> int:
    """Return the number of cores that this process may use; two hardware threads of one core count once."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        try:
            cores.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            cores.add(str(cpu))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(len(cores), round(int(quota) / int(period))))
    except (OSError, ValueError):
        return max(1, len(cores))


def environment(device: torch.device, dtype: torch.dtype | str) -> dict[str, Any]:
    """Return the facts about machine and software versions that are reported with a measurement. dtype:
    data type of the target's matrix products."""
    cuda = device.type == "cuda"
    return {
        "machine": processor(),
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "dtype": str(dtype).removeprefix("torch."),
        "threads": thread_count(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "specviz": VERSION,
        "python": platform.python_version(),
    }


def processor() -> str:
    """Return a description of the processor: its name, the widest instruction set that torch uses on it
    (one name can cover several generations), and the number of usable cores."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    cores = physical_cores()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()}), {cores} core{'s' * (cores > 1)}"
