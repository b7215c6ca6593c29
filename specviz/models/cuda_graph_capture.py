"""CUDA graph capture of a forward pass: buckets (allowed row counts, to which a pass is padded), input
buffers that are filled without synchronising, masks computed on the device, and the captured graphs.

On a CPU the same functions run without capture, so that tests on a CPU cover the captured code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BUCKETS = (1, 2, 4, 8, 16, 32, 64)  # row counts of a captured forward pass
WIDTH = 2 * BUCKETS[-1]  # largest number of draft rows a row may attend to
WARM = 2  # calls before capture, in which libraries choose their kernels


def bucket_of(rows: int) -> int | None:
    """Return the smallest bucket of at least ``rows`` rows; None if there is none."""
    return next((bucket for bucket in BUCKETS if bucket >= rows), None)


def copy_without_sync(destination: Tensor, source: Tensor) -> None:
    """Copy the tensor ``source`` into the device buffer ``destination`` without synchronising."""
    destination.copy_(
        source.pin_memory() if destination.is_cuda and not source.is_cuda else source, non_blocking=True
    )


def visibility_bias(rows: int, sees: Tensor, lo: int, dtype: torch.dtype) -> Tensor:
    """Return the bias [rows, 1 + WIDTH + 1] that is added to attention scores: column 0 for all committed
    slots, WIDTH columns for the slots of draft rows, the last column for all free slots.

    sees: bool [n, lo + n], which draft rows each row of the pass attends to; lo: draft rows before this
    pass. Padding rows attend to themselves only.
    """
    n = len(sees)
    bias = torch.full((rows, WIDTH + 2), -torch.inf, dtype=dtype, device=sees.device)
    bias[:n, 0] = 0
    bias[:n, 1 : 1 + lo + n].masked_fill_(sees, 0)
    bias[n:, 1 + lo + n : 1 + lo + rows].fill_diagonal_(0)
    return bias


def mask_of(bias: Tensor, order: Tensor, past: Tensor, group: int) -> Tensor:
    """Return the attention bias over all slots, [group * rows, slots], from a ``visibility_bias``. order
    [slots]: the position stored in each slot; past [1]: number of committed positions; group: query heads
    per KV head."""
    return bias.index_select(1, (order - past).clamp(-1, WIDTH).add(1)).repeat(group, 1)


class CudaGraphs:
    """Captured CUDA graphs by key, in one memory pool. Later runs may replay them, as long as the tensors
    they were captured on exist."""

    def __init__(self):
        self.graphs: dict[Any, Any] = {}
        self._pool: Any = None

    def run(self, key: Any, work: Callable[[], Any], device: torch.device) -> Any:
        """Replay the graph of this key and return its outputs, which the next replay overwrites. If it is
        missing, ``work`` is captured first; the warm-up before a capture writes to the same buffers."""
        if key not in self.graphs:
            self.graphs[key] = self._capture(work, device)
        graph, out = self.graphs[key]
        graph.replay()
        return out

    def _capture(self, work: Callable[[], Any], device: torch.device) -> tuple[Any, Any]:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(WARM):
                work()
        torch.cuda.current_stream(device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            out = work()
        return graph, out
