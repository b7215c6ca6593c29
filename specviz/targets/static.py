"""The Llama family with shapes that stay: the eager target's twin, recorded once a bucket on CUDA and replayed from then on.

A pass that a recording cannot hold (a prompt, more rows than the largest bucket, states replaced on the way, a view with fewer
layers) runs as the eager target runs it, and is counted by its reason in ``eager``. On a processor the same function runs
unrecorded: what is tested there is what is recorded on a card.
"""
from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Callable

import torch
from torch import Tensor

from ..core import DraftTree, Scores
from ..models.recorded import BUCKETS, WIDTH, bucket_of
from ..models.static_llama import Inputs, Room, forward, new_room
from .fast import FastModel, FastTarget
from .rows import Rows
from .static_slots import SlotMap

STEP = 256  # slots of the smallest room; larger ones are twice as large each
SPARE = 4  # rooms kept for the next runs


class StaticModel(FastModel):
    """Weights of a Hugging Face folder, as FastModel; ``open()`` gives targets of fixed shapes.

    steady: attention adds up in double precision, so that half precision does not depend on where rows lie; None: when the
    weights are in half precision.
    """

    def __init__(self, folder, device: str | torch.device = "cpu", dtype: torch.dtype | None = None, steady: bool | None = None):
        super().__init__(folder, device, dtype)
        self.steady = self.dtype in (torch.bfloat16, torch.float16) if steady is None else steady
        self.records = self.device.type == "cuda"
        self.forward = "captured" if self.records else "static"
        self._spare: list[Room] = []
        self._lock = threading.Lock()

    def open(self) -> StaticTarget:
        return StaticTarget(self)

    def take_room(self, slots: int) -> Room:
        """A room of at least so many slots, one that an earlier run left where there is one."""
        with self._lock:
            fits = [room for room in self._spare if room.capacity >= slots]
            if fits:
                room = min(fits, key=lambda room: room.capacity)
                self._spare = [spare for spare in self._spare if spare is not room]
                return room
        capacity = STEP
        while capacity < slots:
            capacity *= 2
        return new_room(self, capacity)

    def give_room(self, room: Room) -> None:
        with self._lock:
            self._spare = [*self._spare, room][-SPARE:]


class StaticTarget(FastTarget):
    """One run's room over shared weights. bucket: rows of its forwards, which only ever grows; eager: passes by why they ran so."""

    capabilities = FastTarget.capabilities - {"batch"}  # its shapes hold one sequence

    def __init__(self, model: StaticModel):
        self._room: Room | None = None
        self._map = SlotMap(0)
        self.bucket, self.eager = 1, Counter()
        self._running: list[tuple[Any, Any]] = []  # events around passes that may not be over
        self._took: Callable[[], float] | None = None
        super().__init__(model)

    def expect(self, rows: int) -> None:
        self.bucket = max(self.bucket, bucket_of(rows) or BUCKETS[-1])

    # --- time: on a card the host goes on while a pass runs ---------------------------------------------------------
    @property
    def busy(self) -> float:
        """Seconds of the passes that are over: on a card the device's own."""
        over = [pair for pair in self._running if pair[1].query()]
        self._running = [pair for pair in self._running if pair not in over]
        self._busy += sum(begin.elapsed_time(end) for begin, end in over) / 1000
        return self._busy

    @busy.setter
    def busy(self, seconds: float) -> None:
        self._busy = seconds

    @contextmanager
    def timed(self):
        if not self.model.records:
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
            self._busy = before  # launching is not running
        launched = time.perf_counter() - began
        self._took = lambda: launched + begin.elapsed_time(end) / 1000

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        self._took = None
        scores = super().score(tree, start)
        return scores if self._took is None else replace(scores, seconds=self._took)

    # --- the primitives --------------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        reason = self._why_eager(rows)
        if reason:
            self.eager[reason] += 1
            self._straighten(rows.past + rows.lo)
            return super()._forward(rows)
        self.work = None
        self.bucket = max(self.bucket, bucket_of(len(rows.ids)))
        self._reserve(rows.past + rows.lo + self.bucket)
        logits, hidden_states = self._static(rows)
        logits, hidden_states = logits[:len(rows.ids)], {name: states[:len(rows.ids)] for name, states in hidden_states.items()}
        if self.model.records:  # the next replay writes over them
            logits, hidden_states = logits.clone(), {name: states.clone() for name, states in hidden_states.items()}
        return logits, hidden_states

    def _why_eager(self, rows: Rows) -> str:
        """Why a pass is not one of fixed shapes; empty when it is."""
        if rows.last:
            return "prompt"
        if rows.tree.inputs:
            return "states replaced"
        if self.work is not None and not rows.lo and self._continues(rows, self.work):
            return "early exit"
        if len(rows.ids) > BUCKETS[-1] or len(rows.tree) + 1 > WIDTH - BUCKETS[-1]:
            return f"more than {BUCKETS[-1]} rows"
        return ""

    def _static(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """The pass in its bucket: logits and taps of all rows of the bucket."""
        room, model, at = self._room, self.model, rows.past + rows.lo
        if self.bucket not in room.inputs:
            room.inputs[self.bucket] = Inputs(self.bucket, model.dtype, model.device)
        if self._map.changed:
            room.arrange(self._map.inverse())
            self._map.changed = False
        inputs, shape = room.inputs[self.bucket], rows.device_topology
        inputs.put(rows.ids, (shape.depth + rows.past).clamp(max=self.context - 1), self._map.slot[at:at + self.bucket],
                   rows.past, shape.sees, rows.lo)
        if not model.records:
            return forward(model, room, inputs, self._want, model.steady)
        return room.recorded.run((self.bucket, self._want), lambda: forward(model, room, inputs, self._want, model.steady), model.device)

    def lower(self, rows: Rows, exit: int) -> Tensor:
        self._straighten(rows.past + rows.lo)
        return super().lower(rows, exit)

    def lined_up(self) -> Tensor:
        self._straighten(len(self.seen) + self._rows)
        return super().lined_up()

    def _gather(self, past: int, rows: list[int]) -> None:
        self._map.keep(past, rows)

    def _straighten(self, used: int) -> None:
        """Move what does not lie in the slot of its own position, for those who read the cache in order."""
        to, source = self._map.straighten(used)
        if to:
            with torch.inference_mode():
                to, source = (torch.tensor(x, device=self.model.device) for x in (to, source))
                self._cache.index_copy_(3, to, self._cache.index_select(3, source))

    def _reserve(self, slots: int) -> None:
        have = 0 if self._room is None else self._room.capacity
        if have and slots <= have:
            return
        room = self.model.take_room(max(slots, have + 1))
        if have:
            self._straighten(have)
            with torch.inference_mode():
                room.slots[:, :, :, :have] = self._cache
            self.model.give_room(self._room)
        self._room, self._cache, self._map = room, room.slots, SlotMap(room.capacity)

    def close(self) -> None:
        super().close()
        if self._room is not None:
            self.model.give_room(self._room)
        self._room, self._map = None, SlotMap(0)
