"""Durations of forward passes beside llama.cpp's on the same weights, and the bound that memory bandwidth
sets: a pass reads all weights once, so no pass is shorter than their bytes over the bandwidth."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core import DraftTree
from ..core.threads import thread_count
from ..models.linear import PlainLinear, TwoLayouts
from ..models.llama import Llama
from ..models.reduced_vocabulary import ReducedOutput
from .llamacpp_baseline import weight_files

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

ROWS = (1, 2, 5, 9, 13, 33)
CONTEXT = 128  # tokens before the rows
REPEATS = 9
PACKED = "specviz, as many requests of one row"
UNCOUNTED = 3  # passes before an engine's turn is timed: threads of the engine before still wait actively, and caches hold its weights
BANDWIDTH_BYTES = 2**28  # larger than any cache
COLUMNS = ["engine", "weights_mb", "bandwidth_bound_ms", *(f"rows_{n}" for n in ROWS)]


def pass_times(loaded: Loaded, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Return {engine, weights_mb, bandwidth_bound_ms, rows_1, rows_2, ...} for this forward, for its packed
    passes (PACKED) and, where llama.cpp is installed, for llama.cpp on each of ``weight_files``: median
    milliseconds of a pass over that many rows after CONTEXT tokens. Engines take turns."""
    ids, bandwidth = (
        [(7 + 13 * i) % loaded.facts["target"]["vocab"] for i in range(CONTEXT + 1)],
        read_bandwidth(),
    )
    taken: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as opened:
        engines: dict[str, tuple[int, Callable[[int], None]]] = {
            "specviz": (own_bytes(loaded), own_pass(loaded, ids, opened))
        }
        if "batch" in loaded.capabilities:
            engines[PACKED] = own_bytes(loaded), packed_pass(loaded, ids, opened)
        with weight_files(loaded) as files:
            engines |= {name: (path.stat().st_size, llama_pass(path, ids)) for name, path in files.items()}
        for _ in range(repeats):
            for name, (_, run) in engines.items():
                for _ in range(UNCOUNTED):
                    run(1)
                for rows in ROWS:
                    began = time.perf_counter()
                    run(rows)
                    taken.setdefault((name, rows), []).append(time.perf_counter() - began)
    return [
        {
            "engine": name,
            "weights_mb": round(size / 1e6, 1),
            "bandwidth_bound_ms": round(1000 * size / bandwidth, 2),
            **{f"rows_{n}": round(1000 * statistics.median(taken[name, n]), 2) for n in ROWS},
        }
        for name, (size, _) in engines.items()
    ]


def can_time(loaded: Loaded) -> bool:
    """Return whether passes of this target can be timed: it writes text, on a CPU, and has room for the
    rows."""
    return (
        loaded.device.type == "cpu"
        and {"tree", "output:text"} <= loaded.capabilities
        and loaded.context > CONTEXT + max(ROWS)
    )


def read_bandwidth() -> float:
    """Return the bytes a second at which this process's threads read memory: the best of a sum and of a
    product with a vector, five times each. A pass only reads, so a copy would be no bound."""
    block = torch.ones(BANDWIDTH_BYTES // 2**14, 2**12)
    vector = torch.ones(2**12)
    best = float("inf")
    for read in [block.sum, lambda: block.mv(vector)] * 5:
        began = time.perf_counter()
        read()
        best = min(best, time.perf_counter() - began)
    return BANDWIDTH_BYTES / best


def own_bytes(loaded: Loaded) -> int:
    """Return the bytes of the matrices that a pass of the target over few rows reads, in the layout in
    which they are held."""
    model = loaded.model
    if not isinstance(model, Llama):
        return model.parameters * model.dtype.itemsize
    if model.compiled is not None:
        return model.compiled.nbytes
    layers = [getattr(block, name, None) for block in model.blocks for name in model.matrices]
    head = model.head.layer if isinstance(model.head, ReducedOutput) else model.head
    stored = [layer.few if isinstance(layer, TwoLayouts) else layer for layer in (*layers, head)]
    return sum(layer.weight.nbytes for layer in stored if isinstance(layer, PlainLinear))


def own_pass(loaded: Loaded, ids: Sequence[int], opened: ExitStack) -> Callable[[int], None]:
    """Return the function that runs one pass of the target over a number of rows. opened: closes the
    target."""
    target = loaded.open_target()
    opened.callback(target.close)
    target.sync(list(ids))
    target.flush()

    def run(rows: int) -> None:
        nodes = rows - 1
        with torch.inference_mode():
            scores = target.score(DraftTree(tuple(ids[:nodes]), tuple(range(-1, nodes - 1)), (-1,) * nodes))
        assert len(scores.logits) == rows
        target.drop_draft_rows()  # else the next pass would find the root computed

    return run


def packed_pass(loaded: Loaded, ids: Sequence[int], opened: ExitStack) -> Callable[[int], None]:
    """Return the function that runs one packed pass of the target over one row each of a number of
    requests. opened: closes them."""
    targets = []
    for i in range(max(ROWS)):
        target = loaded.open_target()
        opened.callback(target.close)
        target.sync([*ids[i:], *ids[:i]])
        target.flush()
        targets.append(target)

    def run(rows: int) -> None:
        with torch.inference_mode():
            scores = targets[0].score_many(targets[:rows], [DraftTree()] * rows)
        assert [len(one.logits) for one in scores] == [1] * rows
        for target in targets[:rows]:
            target.drop_draft_rows()

    return run


def llama_pass(path: Path, ids: Sequence[int]) -> Callable[[int], None]:
    """Return the function that runs one pass of llama.cpp over a number of rows, with the logits of all of
    them."""
    import llama_cpp

    threads = thread_count()
    most = max(ROWS)
    model = llama_cpp.Llama(
        str(path),
        n_ctx=CONTEXT + 2 * most,
        n_threads=threads,
        n_threads_batch=threads,
        use_mmap=False,
        logits_all=True,
        verbose=False,
    )
    model.eval(list(ids[:CONTEXT]))
    context, batch = model.ctx, llama_cpp.llama_batch_init(most, 0, 1)
    memory: Any = llama_cpp.llama_get_memory(context)

    def run(rows: int) -> None:
        batch.n_tokens = rows
        for i in range(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = ids[i], CONTEXT + i, 1, True
            batch.seq_id[i][0] = 0
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError(f"llama.cpp refused a pass over {rows} rows")
        ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))[
            0
        ]  # waits for the result
        llama_cpp.llama_memory_seq_rm(memory, -1, CONTEXT, -1)
        assert model  # alive as long as its context

    return run
