"""The Llama family with static shapes: each bucket's forward pass is captured once as a CUDA graph and
replayed from then on.

A pass that does not fit a graph (a prompt, more rows than the largest bucket, replaced states, a view with
fewer layers) runs eagerly and is counted by its reason in ``eager``. On a CPU the same function runs
without capture, so that tests on a CPU cover the captured code.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core import DraftTree, Scores
from ..models.cuda_graph_capture import BUCKETS, WIDTH, bucket_of
from ..models.static_llama import Inputs, StaticKVBuffer, forward, new_kv_buffer
from .fast import FastModel, FastTarget
from .rows import Rows
from .slot_map import SlotMap

TOO_MANY = f"more than {BUCKETS[-1]} rows"  # why a pass ran eagerly

STEP = 256  # slots of the smallest buffer; larger ones double
SPARE = 4  # buffers kept for the next runs


class StaticModel(FastModel):
    """Weights of a Hugging Face folder, as FastModel; ``open()`` returns targets with static shapes (CUDA
    graphs).

    float64_attention: sum attention in double precision, so that results in half precision do not depend on
    the order of slots; None: only if the weights are in half precision.
    """

    def __init__(
        self,
        folder,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        float64_attention: bool | None = None,
    ):
        super().__init__(folder, device, dtype)
        self.float64_attention = (
            self.dtype in (torch.bfloat16, torch.float16) if float64_attention is None else float64_attention
        )
        self.captures_graphs = self.device.type == "cuda"
        self.forward = "captured" if self.captures_graphs else "static"
        self._spare: list[StaticKVBuffer] = []
        self._lock = threading.Lock()

    def open(self) -> StaticTarget:
        """Return a target with static shapes over these weights."""
        return StaticTarget(self)

    def take_buffer(self, slots: int) -> StaticKVBuffer:
        """Return a KV buffer of at least ``slots`` slots; one of an earlier run, with its captured graphs,
        if there is one."""
        with self._lock:
            fits = [buffer for buffer in self._spare if buffer.capacity >= slots]
            if fits:
                buffer = min(fits, key=lambda buffer: buffer.capacity)
                self._spare = [spare for spare in self._spare if spare is not buffer]
                return buffer
        capacity = STEP
        while capacity < slots:
            capacity *= 2
        return new_kv_buffer(self, capacity)

    def return_buffer(self, buffer: StaticKVBuffer) -> None:
        """Give a KV buffer back for later runs."""
        with self._lock:
            self._spare = [*self._spare, buffer][-SPARE:]


class StaticTarget(FastTarget):
    """A target with static shapes, for one run: passes run in buckets of rows, each captured as a CUDA
    graph. bucket: number of rows of its passes, which only grows; eager: {reason: number of passes that ran
    eagerly}."""

    capabilities = FastTarget.capabilities - {"batch"}  # static shapes hold one sequence
    model: StaticModel

    def __init__(self, model: StaticModel):
        self._buffer: StaticKVBuffer | None = None
        self._map = SlotMap(0)
        self.bucket, self.eager = 1, Counter()
        self._running: list[tuple[Any, Any]] = []  # events around passes that may not be over
        self._took: Callable[[], float] | None = None
        super().__init__(model)

    def expect(self, rows: int) -> None:
        """Choose a bucket that fits ``rows`` rows (root and draft nodes)."""
        self.bucket = max(self.bucket, bucket_of(rows) or BUCKETS[-1])

    # --- timing: on CUDA the host continues while a pass runs ---------------------------------------------------------
    @property
    def busy(self) -> float:
        """Seconds of the finished passes; on CUDA measured by device events."""
        over = [pair for pair in self._running if pair[1].query()]
        self._running = [pair for pair in self._running if pair not in over]
        self._busy += sum(begin.elapsed_time(end) for begin, end in over) / 1000
        return self._busy

    @busy.setter
    def busy(self, seconds: float) -> None:
        self._busy = seconds

    @contextmanager
    def timed(self):
        """Context manager around a pass: measures it with CUDA events, because the host continues while a
        captured pass runs."""
        if not self.model.captures_graphs:
            with super().timed():
                yield
            return
        stream = torch.cuda.current_stream(self.model.device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before, began = self.busy, time.perf_counter()
        try:
            begin.record(stream)
            with super().timed():
                yield
            end.record(stream)
            self._running.append((begin, end))
        finally:
            self._busy = before  # launch time is not run time
        launched = time.perf_counter() - began
        self._took = lambda: launched + begin.elapsed_time(end) / 1000

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the Scores as the base class does; ``seconds`` returns the pass's duration once it has
        finished."""
        self._took = None
        scores = super().score(tree, start)
        return scores if self._took is None else replace(scores, seconds=self._took)

    # --- the primitives --------------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        reason = self._why_eager(rows)
        if reason:
            self.eager[reason] += 1
            self._reset_slots(rows.past + rows.lo)
            return super()._forward(rows)
        self.work = None
        self.bucket = max(self.bucket, bucket_of(len(rows.ids)) or BUCKETS[-1])
        self._reserve(rows.past + rows.lo + self.bucket)
        logits, hidden_states = self._static(rows)
        logits, hidden_states = (
            logits[: len(rows.ids)],
            {name: states[: len(rows.ids)] for name, states in hidden_states.items()},
        )
        if self.model.captures_graphs:  # the next replay overwrites them
            logits, hidden_states = (
                logits.clone(),
                {name: states.clone() for name, states in hidden_states.items()},
            )
        return logits, hidden_states

    def _why_eager(self, rows: Rows) -> str:
        """Return the reason why a pass cannot have static shapes; empty if it can."""
        if rows.last:
            return "prompt"
        if rows.tree.inputs:
            return "states replaced"
        if self.work is not None and not rows.lo and self._continues(rows, self.work):
            return "early exit"
        if len(rows.ids) > BUCKETS[-1] or len(rows.tree) + 1 > WIDTH - BUCKETS[-1]:
            return TOO_MANY
        return ""

    def _static(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the pass in its bucket; return logits and captured states of all rows of the bucket."""
        buffer = self._buffer
        model = self.model
        at = rows.past + rows.lo
        assert buffer is not None  # reserved
        if self.bucket not in buffer.inputs:
            buffer.inputs[self.bucket] = Inputs(self.bucket, model.dtype, model.device)
        if self._map.changed:
            buffer.set_order(self._map.inverse())
            self._map.changed = False
        inputs, shape = buffer.inputs[self.bucket], rows.device_topology
        inputs.put(
            rows.ids,
            (shape.depth + rows.past).clamp(max=self.context - 1),
            self._map.slot[at : at + self.bucket],
            rows.past,
            shape.sees,
            rows.lo,
        )

        def work() -> tuple[Tensor, dict[str, Tensor]]:
            return forward(model, buffer, inputs, self._want, model.float64_attention)

        return (
            buffer.graphs.run((self.bucket, self._want), work, model.device)
            if model.captures_graphs
            else work()
        )

    def run_lower_layers(self, rows: Rows, exit: int) -> Tensor:
        """Move rows to the slots of their positions, then run the layers before layer ``exit`` eagerly."""
        self._reset_slots(rows.past + rows.lo)
        return super().run_lower_layers(rows, exit)

    def slots_in_order(self) -> Tensor:
        """Return the KV cache with the row of each position in the slot of the same number; rows are moved
        if necessary."""
        self._reset_slots(len(self.cached_tokens) + self._rows)
        return super().slots_in_order()

    def _gather(self, past: int, rows: list[int]) -> None:
        self._map.keep(past, rows)

    def _reset_slots(self, used: int) -> None:
        """Move rows to the slots of their positions, for readers of the cache in order."""
        to, source = self._map.reset_to_identity(used)
        if to:
            with torch.inference_mode():
                to, source = (torch.tensor(x, device=self.model.device) for x in (to, source))
                self.slots.index_copy_(3, to, self.slots.index_select(3, source))

    def _reserve(self, slots: int) -> None:
        have = 0 if self._buffer is None else self._buffer.capacity
        if have and slots <= have:
            return
        buffer = self.model.take_buffer(max(slots, have + 1))
        if self._buffer is not None:
            self._reset_slots(have)
            with torch.inference_mode():
                buffer.slots[:, :, :, :have] = self.slots
            self.model.return_buffer(self._buffer)
        self._buffer = buffer
        self._cache = buffer.slots
        self._map = SlotMap(buffer.capacity)

    def close(self) -> None:
        """Give the KV buffer back to the model."""
        super().close()
        if self._buffer is not None:
            self.model.return_buffer(self._buffer)
        self._buffer, self._map = None, SlotMap(0)
