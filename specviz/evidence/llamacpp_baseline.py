"""llama.cpp's own decoding as rows of the benchmark: the same weights and the same number of threads,
through llama-cpp-python's low-level calls. The weights are in 16 bits, in llama.cpp's eight bits (Q8_0),
and in the target's own GGUF file if it has one. It is available if that package and ``gguf``, which writes
the files, are installed.

Decoding is greedy, or sampled by llama.cpp. Seconds are counted after the prefill; the pass over the prompt
yields the first token, which is not counted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints.gguf_reader import gguf_weights
from ..checkpoints.split import parts_of
from ..core import Sampling
from ..core.threads import thread_count
from ..run.result import Result
from ..run.session import Session
from ..trace.file_writer import write_file
from ..trace.metrics import Totals
from ..zoo.gguf_export import export
from ..zoo.registry import Entry, ZooError

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

NAME = "llama_cpp"
TYPES = {NAME: "half", f"{NAME}_q8_0": "q8_0"}  # types of the weights in files that are written for llama.cpp
OWN_FILE = f"{NAME}_file"


def references(loaded: Loaded, plain: Session) -> dict[str, LlamaCpp]:
    """Return {name: runner} of this baseline; empty if a package is missing, the device is not a CPU, or
    llama.cpp does not support the architecture."""
    with weight_files(loaded) as files:
        return {name: LlamaCpp(loaded, plain, path) for name, path in files.items()}


@contextmanager
def weight_files(loaded: Loaded) -> Iterator[dict[str, Path]]:
    """Within this context there are GGUF files of the target's weights: {row name: path}. Empty if a
    package is missing, the device is not a CPU, or llama.cpp does not support the architecture."""
    if loaded.device.type != "cpu" or not (find_spec("llama_cpp") and find_spec("gguf")):
        yield {}
        return
    found: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as folder:  # a file is read into memory and may go once it is open
        for name, kind in TYPES.items():
            path = Path(folder) / f"{name}.gguf"
            with suppress(ZooError):  # an architecture that is not written
                export(Entry(loaded.name, path=loaded.folder), path, kind)
                found[name] = path
        if own := gguf_weights(loaded.folder):
            found[OWN_FILE] = Path(folder) / f"{OWN_FILE}.gguf"
            parts = parts_of(loaded.folder, ".gguf").get(own.name, [own])
            write_file(found[OWN_FILE], b"".join(part.read_bytes() for part in parts))
        yield found


class LlamaCpp:
    """Runs llama.cpp for the benchmark on a GGUF file: calling it with (prompt, sampling, length) returns a
    Result."""

    def __init__(self, loaded: Loaded, plain: Session, path: Path):
        from llama_cpp import Llama

        self.session = plain
        threads = thread_count()
        self._model = Llama(
            str(path),
            n_ctx=loaded.context,
            n_threads=threads,
            n_threads_batch=threads,
            use_mmap=False,
            verbose=False,
        )

    def __call__(self, prompt: Any, sampling: Sampling, length: int) -> Result:
        loaded, model = self.session.loaded, self._model
        ids = self.session.encode(prompt)
        length = min(length, loaded.context - len(ids))
        model.reset()
        model.set_seed(sampling.seed)
        probs = {
            "temp": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
        }
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
