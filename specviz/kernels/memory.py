"""Aligned buffers whose addresses compiled functions read."""

from __future__ import annotations

import math
import mmap

import numpy as np

LINE = 64  # bytes of a cache line
HUGE = 2**21  # bytes of a huge page; larger buffers ask for them


def aligned(shape: tuple[int, ...] | int, kind: type, huge: bool = False) -> np.ndarray:
    """Return an uninitialised array (zeros, if ``huge``) aligned to a cache line. huge: ask the system for
    huge pages, for weights that every pass reads."""
    shape = (shape,) if isinstance(shape, int) else shape
    size = math.prod(shape) * np.dtype(kind).itemsize
    if huge and size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        area = mmap.mmap(-1, size + HUGE)
        area.madvise(mmap.MADV_HUGEPAGE)
        raw, align = np.frombuffer(area, np.uint8), HUGE
    else:
        raw, align = np.empty(size + LINE, np.uint8), LINE
    start = -address(raw) % align
    return raw[start : start + size].view(kind).reshape(shape)


def address(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    return array.ctypes.data


def round_up(number: int, multiple: int) -> int:
    """Return the smallest multiple that is not below a number."""
    return -(-number // multiple) * multiple


class Arena:
    """Buffers of weights that lie side by side in large pieces of memory, so that few pages cover them."""

    def __init__(self, piece: int = 2**25):
        self._piece = piece
        self._left = aligned(0, np.uint8)

    def take(self, size: int) -> np.ndarray:
        """Return an aligned buffer of ``size`` bytes, uint8."""
        if size > len(self._left):
            self._left = aligned(round_up(max(size, self._piece), HUGE), np.uint8, huge=True)
        buffer, self._left = self._left[:size], self._left[round_up(size, LINE) :]
        return buffer
