"""What a forward needs so that one recording of it (a CUDA graph) serves every round: a number of rows out of few, inputs that lie in
tensors that stay and are filled without waiting for the device, a mask that follows from numbers on the device, and the recordings.

On a processor the same functions run unrecorded: what is tested there is what is recorded on a card.
"""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

BUCKETS = (1, 2, 4, 8, 16, 32, 64)  # rows of a forward
WIDTH = 2 * BUCKETS[-1]  # scratch rows that a row may see
WARM = 2  # calls before one is recorded: libraries choose their kernels in them


def bucket_of(rows: int) -> int | None:
    """The smallest bucket that holds so many rows; None when none does."""
    return next((bucket for bucket in BUCKETS if bucket >= rows), None)


def send(there: Tensor, here: Tensor) -> None:
    """Fill a tensor of the device from one of the host, or of its own; the host goes on meanwhile."""
    there.copy_(here.pin_memory() if there.is_cuda and not here.is_cuda else here, non_blocking=True)


def seen_by(rows: int, sees: Tensor, lo: int, dtype: torch.dtype) -> Tensor:
    """[rows, 1 + WIDTH + 1], added to scores: on committed slots, on the scratch, on free slots. sees [n, lo + n], bool, of the
    scratch; rows to spare see only themselves."""
    n = len(sees)
    bias = torch.full((rows, WIDTH + 2), -torch.inf, dtype=dtype, device=sees.device)
    bias[:n, 0] = 0
    bias[:n, 1:1 + lo + n].masked_fill_(sees, 0)
    bias[n:, 1 + lo + n:1 + lo + rows].fill_diagonal_(0)
    return bias


def mask_of(bias: Tensor, order: Tensor, past: Tensor, group: int) -> Tensor:
    """``seen_by`` spread over all slots, [group * rows, slots]. order [slots]: the position that lies in each; past [1]: how many are
    committed."""
    return bias.index_select(1, (order - past).clamp(-1, WIDTH).add(1)).repeat(group, 1)


class Recordings:
    """Recordings of functions over tensors that stay, by key, in one pool of memory. They may outlive a run, never their tensors."""

    def __init__(self):
        self.graphs: dict[Any, Any] = {}
        self._pool: Any = None

    def run(self, key: Any, work: Callable[[], Any], device: torch.device) -> Any:
        """Replay what was recorded under this key, recording it first; its outputs are written over by the next replay. Warming up
        writes what the replay will write."""
        if key not in self.graphs:
            self.graphs[key] = self._record(work, device)
        graph, out = self.graphs[key]
        graph.replay()
        return out

    def _record(self, work: Callable[[], Any], device: torch.device) -> tuple[Any, Any]:
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
