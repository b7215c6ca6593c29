"""Two models at work at the same time: the draft model in a thread of its own, the target in the caller's. torch gives Python's
lock back inside its operations, so both compute."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import Any, Callable

import torch


class Beside:
    """One more thread. On a processor it has one core and the target the others; on an accelerator it has a stream of its own.

    Use it in a ``with`` block: leaving it waits for the thread and ends it.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pool = ThreadPoolExecutor(1, "draft", lambda: (torch.set_num_threads(1), torch.get_num_threads()))

    @staticmethod
    def fits(device: torch.device) -> bool:
        """Whether there is room for two: an accelerator, or at least two cores."""
        return device.type == "cuda" or torch.get_num_threads() > 1

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *error) -> None:
        self._pool.shutdown()

    def both(self, draft: Callable[[], Any], score: Callable[[], Any]) -> tuple[Any, Any]:
        """What the two return. Both have ended when this returns, and when it raises what one of them raised."""
        cores = torch.get_num_threads()
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
        torch.set_num_threads(max(1, cores - 1))  # of this thread; the other one has pinned itself
        try:
            drafting = self._pool.submit(self._work, draft, torch.is_inference_mode_enabled())
            try:
                scored = score()
            finally:
                wait([drafting])
        finally:
            torch.set_num_threads(cores)  # also what threads begin with that come later
        if self.stream:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return drafting.result(), scored

    def _work(self, draft: Callable[[], Any], inference: bool) -> Any:
        with torch.inference_mode(inference), torch.cuda.stream(self.stream) if self.stream else nullcontext():
            return draft()
