"""CUDA graph capture of a forward pass: buckets of rows, input buffers that are filled without synchronising, masks
computed on the device, and the captured graphs.

On a CPU the same functions run without capture, so that tests on a CPU cover the captured code.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BUCKETS = (1, 2, 4, 8, 16, 32, 64)  # row counts of a captured forward pass
WIDTH = 2 * BUCKETS[-1]  # largest number of scratch rows a row may attend to
WARM = 2  # calls before capture, in which libraries choose their kernels


def bucket_of(rows: int) -> int | None:
    """Return the smallest bucket that holds ``rows``; None if there is none."""
    return next((bucket for bucket in BUCKETS if bucket >= rows), None)


def copy_without_sync(there: Tensor, here: Tensor) -> None:
    """Copy a tensor to a device buffer without synchronising."""
    there.copy_(here.pin_memory() if there.is_cuda and not here.is_cuda else here, non_blocking=True)


def visibility_bias(rows: int, sees: Tensor, lo: int, dtype: torch.dtype) -> Tensor:
    """Return the bias [rows, 1 + WIDTH + 1] that is added to attention scores: column 0 for all committed slots, WIDTH
    columns for the scratch slots, the last column for all free slots. sees [n, lo + n], bool: which scratch rows each
    row attends to; padding rows attend to themselves only."""
    n = len(sees)
    bias = torch.full((rows, WIDTH + 2), -torch.inf, dtype=dtype, device=sees.device)
    bias[:n, 0] = 0
    bias[:n, 1:1 + lo + n].masked_fill_(sees, 0)
    bias[n:, 1 + lo + n:1 + lo + rows].fill_diagonal_(0)
    return bias


def mask_of(bias: Tensor, order: Tensor, past: Tensor, group: int) -> Tensor:
    """Expand the result of ``visibility_bias`` to all slots, [group * rows, slots]. order [slots]: the position stored
    in each slot; past [1]: number of committed positions."""
    return bias.index_select(1, (order - past).clamp(-1, WIDTH).add(1)).repeat(group, 1)


class CudaGraphs:
    """Captured CUDA graphs by key, in one memory pool. They may be used by later runs, as long as the tensors they were
    captured on exist."""

    def __init__(self):
        self.graphs: dict[Any, Any] = {}
        self._pool: Any = None

    def run(self, key: Any, work: Callable[[], Any], device: torch.device) -> Any:
        """Replay the graph of this key; capture it first if it is missing. The next replay overwrites the returned
        outputs. The warm-up before a capture writes to the same buffers."""
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
