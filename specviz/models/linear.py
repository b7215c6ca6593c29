"""One linear layer, stored the way this processor multiplies fastest.

On a CPU a plain ``F.linear`` costs nearly twice as much for a few rows as for one, which would make verification look dear.
The same weights stored transposed, packed by oneDNN, or in the 16 bits they were published in, take eight rows for little more
than one. Which of them wins depends on the processor and on the number of rows, so all are measured when weights are loaded.
Some of these ops are private to torch: they are named here and nowhere else, and used only when they agree with ``F.linear``.
"""
from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from .scripting import widened

MANY = 4  # rows from which a forward counts as a verification
ROWS = (1, 8)  # measured: a plain step, a small tree
TWICE = 2**28  # bytes of weights up to which two layouts may be kept
NEAR = 2**24  # bytes of weights up to which a model stays near the processor, so that its small matrices cost their calls
TICK = 1e-9  # the least a clock can tell: a coarse one says 0, and one that was set back less
LITTLE = 2**22  # bytes of weights below which a model is measured for less time: its layers differ by less than it would cost
MOST_ROUNDS = 5000  # of measuring, also where the clock stands still
WORTH = 1.05  # how much slower one layout must be, on average, for two to be kept

HALF = 2**-25  # how far a weight may lie from its 16-bit float: the rounding of the very smallest, less than float32 adds in a sum

Layer = Callable[[Tensor], Tensor]
_by_clock: ContextVar[bool] = ContextVar("layouts are chosen by measuring", default=True)


class PlainLinear:
    """y = x W^T + b, x [rows, in], W [out, in]. ``add`` returns residual + y; ``holds``: whether W can be stored so, unchanged."""

    kernel = "plain"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + F.linear(x, self.weight, self.bias)

    @staticmethod
    def holds(weight: Tensor) -> bool:
        return True


class TransposedLinear(PlainLinear):
    """The same with W stored as [in, out], which row-major kernels stream through."""

    kernel = "transposed"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight.t().contiguous(), bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        y = torch.addmm(residual, x, self.weight)
        return y if self.bias is None else y.add_(self.bias)


class PackedLinear(PlainLinear):
    """The same in oneDNN's own blocked layout."""

    kernel = "onednn"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS[-1]), bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")


class HalfLinear(PlainLinear):
    """The same with W in 16-bit floats that are widened as they stream in: half the memory to read, the same sums in float32."""

    kernel = "fp16"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), bias)
        self._run = widened(self.packed)

    def __call__(self, x: Tensor) -> Tensor:
        return self._run(x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x).add_(residual)

    @staticmethod
    def holds(weight: Tensor) -> bool:
        """Whether these weights are 16-bit numbers already, as most that are published."""
        return bool(((weight.half().to(weight.dtype) - weight).abs() <= HALF).all())


class TwoLayouts:
    """One layout for a row or two, another for many."""

    def __init__(self, few, many):
        self.few, self.many = few, many

    def __call__(self, x: Tensor) -> Tensor:
        return self.few(x) if x.shape[0] < MANY else self.many(x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.few.add(x, residual) if x.shape[0] < MANY else self.many.add(x, residual)


class Layout:
    """How a model's matrices are stored: ``layout(weight, bias)`` makes a layer; ``kernel`` names the kinds for people.

    kinds: (few rows, many rows) by shape of the matrix [out, in]; a shape that is not there is stored plainly.
    """

    def __init__(self, kinds: dict[tuple[int, ...], tuple[type, type]] | None = None):
        self._kinds = kinds or {}
        used = [kind.kernel for pair in self._kinds.values() for kind in pair]
        self.kernel = " and ".join(dict.fromkeys(used or [PlainLinear.kernel]))

    def __call__(self, weight: Tensor, bias: Tensor | None = None):
        pair = self._kinds.get(tuple(weight.shape), (PlainLinear, PlainLinear))
        few, many = (kind if kind.holds(weight) else PlainLinear for kind in pair)
        return few(weight, bias) if many is few else TwoLayouts(few(weight, bias), many(weight, bias))


@contextmanager
def unmeasured() -> Iterator[None]:
    """Weights that are stored in here are stored transposed, whatever a clock would say: layouts round differently, so only a fixed one
    gives the same numbers in the next process, too."""
    before = _by_clock.set(False)
    try:
        yield
    finally:
        _by_clock.reset(before)


def fastest(weights: list[Tensor], total: int, budget: float = 0.25) -> Layout:
    """What runs these weights [out, in] quickest, for one row and for eight; the plain one off the CPU.

    In a small model every shape has its own: its large matrices wait for memory and its small ones for the call. In a larger one
    all wait for memory, which tells only when they are measured together: a mix chosen matrix by matrix ran slower. total: bytes
    of the whole model; a very large one is not kept in two layouts, so one must do for both. budget: seconds of
    measuring, less for a very small one.
    """
    if weights[0].device.type != "cpu" or weights[0].dtype != torch.float32:
        return Layout()
    if not _by_clock.get():
        return Layout({tuple(weight.shape): (TransposedLinear, TransposedLinear) for weight in weights})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a thread's own time can be told from its neighbours'; that of two that wait for each other cannot
    try:
        measured = _measure(weights, budget * min(1.0, total / LITTLE))
    finally:
        torch.set_num_threads(threads)
    whole = {kind: {rows: sum(seconds[kind][rows] for seconds in measured.values()) for rows in ROWS}
             for kind in next(iter(measured.values()))}
    return Layout({shape: _pair(seconds if total <= NEAR else whole, total) for shape, seconds in measured.items()})


def _pair(seconds: dict[type, dict[int, float]], total: int) -> tuple[type, type]:
    """The kinds for few rows and for many, of what was measured."""
    seconds = {kind: {rows: max(spent, TICK) for rows, spent in times.items()} for kind, times in seconds.items()}
    few, many = (min(seconds, key=lambda kind: seconds[kind][rows]) for rows in ROWS)
    slower = {kind: sum(times[rows] / seconds[best][rows] for rows, best in zip(ROWS, (few, many))) / 2 for kind, times in seconds.items()}
    one = min(slower, key=slower.get)
    return (few, many) if slower[one] > WORTH and total <= TWICE else (one, one)


@torch.inference_mode()
def _measure(weights: list[Tensor], budget: float) -> dict[tuple[int, ...], dict[type, dict[int, float]]]:
    """Seconds by shape, layout and number of rows.

    Interleaved, and the least of several, as a busy machine only ever adds time. The weights run one after another, as they do
    in a forward.
    """
    kinds = [kind for kind in (PlainLinear, TransposedLinear, PackedLinear, HalfLinear) if _agrees(kind, weights)]
    stacks = {kind: [kind(w) for w in weights] for kind in kinds}
    least = {(kind, rows): [float("inf")] * len(weights) for kind in kinds for rows in ROWS}
    inputs = {rows: [torch.ones(rows, w.shape[1]) for w in weights] for rows in ROWS}
    end, rounds = time.perf_counter() + budget, 0
    while rounds < 5 or time.perf_counter() < end and rounds < MOST_ROUNDS:  # neighbours slow a core for tenths of a second at a time
        rounds += 1
        for (kind, rows), found in least.items():
            stacks[kind][-1](inputs[rows][-1])  # not on the clock: in a run the layer before is one of this layout, too
            for i, (layer, x) in enumerate(zip(stacks[kind], inputs[rows])):
                began = time.thread_time()  # not wall time: another process on this core is not this layout's fault
                layer(x)
                found[i] = min(found[i], time.thread_time() - began)
    alike: dict[tuple[int, ...], list[int]] = {}
    for i, weight in enumerate(weights):
        alike.setdefault(tuple(weight.shape), []).append(i)
    return {shape: {kind: {rows: sum(least[kind, rows][i] for i in places) for rows in ROWS} for kind in kinds}
            for shape, places in alike.items()}


@torch.inference_mode()
def _agrees(kind: type, weights: list[Tensor]) -> bool:
    """Whether the layout works here and gives F.linear's numbers, with and without the residual."""
    if not all(kind.holds(weight) for weight in weights):
        return False
    weight = weights[0]
    generator, bias = torch.Generator().manual_seed(0), weight[:, 0].clone()
    try:
        layer = kind(weight, bias)
        for rows in (1, 2, ROWS[-1]):
            x, more = (torch.randn(rows, width, generator=generator) for width in (weight.shape[1], weight.shape[0]))
            want = F.linear(x, weight, bias)
            slack = 1e-5 * (float(want.abs().max()) + 1)
            if not float((layer(x) - want).abs().max()) <= slack or not float((layer.add(x, more) - more - want).abs().max()) <= slack:
                return False
    except (AttributeError, RuntimeError, NotImplementedError):  # another torch or processor: the op is not there
        return False
    return True
