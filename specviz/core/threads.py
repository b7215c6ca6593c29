"""The number of threads of compiled passes and of torch's operations.

After an operation of several threads, torch's idle threads spin on their cores for a while. A compiled pass
that also uses them then takes twice as long. So torch gets one thread beside a model whose pass is compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import torch

_chosen: int | None = None
_limits = threading.local()


def thread_count() -> int:
    """Return the number of threads of a pass on this thread: the number chosen last, or torch's, and at most
    that of ``thread_limit``."""
    count = torch.get_num_threads() if _chosen is None else _chosen
    return min(count, getattr(_limits, "most", count))


def set_thread_count(count: int, compiled: bool = False) -> None:
    """Choose the number of threads of all passes. compiled: passes are compiled calls, so torch itself gets
    one thread (on this thread, and on those started later)."""
    global _chosen
    _chosen = count
    torch.set_num_threads(1 if compiled else count)


@contextmanager
def thread_limit(most: int) -> Generator[None]:
    """Context in which passes and torch's operations on this thread use at most ``most`` threads."""
    before = torch.get_num_threads()
    outer = getattr(_limits, "most", None)
    torch.set_num_threads(min(most, before))
    _limits.most = most if outer is None else min(most, outer)
    try:
        yield
    finally:
        torch.set_num_threads(before)  # also the default of threads started later
        if outer is None:
            del _limits.most
        else:
            _limits.most = outer
