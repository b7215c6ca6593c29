"""Run the draft model in a second thread while the target runs in the caller's. torch releases the GIL
inside its operations, so both compute in parallel."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import Any

import torch

from ..core.threads import thread_count, thread_limit


class DraftThread:
    """A worker thread for the draft model. On a CPU it gets one core and the target the others; on a GPU it
    gets its own CUDA stream.

    Use it in a ``with`` block: leaving it joins the thread.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pool = ThreadPoolExecutor(1, "draft")

    @staticmethod
    def fits(device: torch.device) -> bool:
        """Return whether two models can run in parallel on this device: on a GPU, or on a CPU with at least
        two threads."""
        return device.type == "cuda" or thread_count() > 1

    def __enter__(self) -> DraftThread:
        return self

    def __exit__(self, *error) -> None:
        self._pool.shutdown()

    def run_both(self, draft: Callable[[], Any], score: Callable[[], Any]) -> tuple[Any, Any]:
        """Run ``draft`` in the worker thread and ``score`` in this one, and return both results. Both have
        ended when this returns or raises."""
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with thread_limit(max(1, thread_count() - 1)):
            drafting = self._pool.submit(self._work, draft, torch.is_inference_mode_enabled())
            try:
                scored = score()
            finally:
                wait([drafting])
        if self.stream:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return drafting.result(), scored

    def _work(self, draft: Callable[[], Any], inference: bool) -> Any:
        with (
            thread_limit(1),
            torch.inference_mode(inference),
            torch.cuda.stream(self.stream) if self.stream else nullcontext(),
        ):
            return draft()
