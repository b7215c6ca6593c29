"""llama.cpp's own decoding as a row of the benchmark: the same weights in 16 bits and the same number of threads, through
llama-cpp-python's low-level calls. It is available if that package and ``gguf``, which writes the file, are installed.

Decoding is greedy, or sampled by llama.cpp. Seconds are counted after the prefill; the pass over the prompt yields the first
token, which is not counted."""
from __future__ import annotations

import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core import Sampling
from ..run.result import Result
from ..run.session import Session
from ..trace.metrics import Totals
from ..zoo.gguf_export import export
from ..zoo.registry import Entry, ZooError

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

NAME = "llama_cpp"


def references(loaded: Loaded, plain: Session) -> dict[str, LlamaCpp]:
    """Return {name: runner} of this baseline; empty if a package is missing, the device is not a CPU, or llama.cpp does not support the
    architecture."""
    if loaded.device.type != "cpu" or not (find_spec("llama_cpp") and find_spec("gguf")):
        return {}
    try:
        return {NAME: LlamaCpp(loaded, plain)}
    except ZooError:
        return {}


class LlamaCpp:
    """Runs llama.cpp for the benchmark: calling it with (prompt, sampling, length) returns a Result. Raises ZooError if the target
    cannot be exported to GGUF."""

    def __init__(self, loaded: Loaded, plain: Session):
        from llama_cpp import Llama

        self.session, threads = plain, torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder:  # the file is mapped into memory and may go once it is open
            path = Path(folder) / "target.gguf"
            export(Entry(loaded.name, path=loaded.folder), path)
            self._model = Llama(str(path), n_ctx=loaded.context, n_threads=threads, n_threads_batch=threads, use_mmap=False,
                                verbose=False)

    def __call__(self, prompt: Any, sampling: Sampling, length: int) -> Result:
        loaded, model = self.session.loaded, self._model
        ids = self.session.encode(prompt)
        length = min(length, loaded.context - len(ids))
        model.reset()
        model.set_seed(sampling.seed)
        probs = {"temp": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": 0.0, "repeat_penalty": 1.0}
        written: list[int] = []
        began = 0.0
        for token in model.generate(ids, reset=True, **probs):
            if not written:
                began = time.perf_counter()
            written.append(token)
            if token in loaded.end_tokens or len(written) >= length:
                break
        seconds = time.perf_counter() - began
        totals = Totals(tokens=len(written) - 1, rounds=len(written) - 1, phase_seconds={"verify": seconds})
        return Result(ids, written, "", totals, seconds)
