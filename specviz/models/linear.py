"""Linear layers whose weight layout is chosen for this processor by timing.

On a CPU a plain ``F.linear`` may take nearly twice as long for a few rows as for one, which would make
verification expensive; with weights stored transposed, eight rows may take little longer than one. The best
layout depends on the processor and on the number of rows, so both are timed when weights are loaded. A
layout is used only if its results agree with ``F.linear``. A row's bits may depend on the other rows of a
pass; int8 models (kernels/) do not have that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn import functional as F

MANY = 4  # rows from which a forward counts as a verification
ROWS = (1, 8)  # timed row counts: a plain decoding step, a small tree
TWICE = 2**28  # largest weights, in bytes, for which two layouts may be kept
NEAR = (
    2**24
)  # largest weights, in bytes, that stay in cache, so that small matrices are bound by call overhead
TICK = 1e-9  # lower bound of a timing, since a coarse clock returns 0 or less
LITTLE = 2**22  # weights, in bytes, below which less time is spent on timing
MOST_ROUNDS = 5000  # repetitions of a timing, also if the clock does not advance
WORTH = 1.05  # two layouts are kept if one alone is slower by this factor on average

Layer = Callable[[Tensor], Tensor]
_by_clock: ContextVar[bool] = ContextVar("layouts are chosen by timing", default=True)


class PlainLinear:
    """A linear layer with its matrix stored unchanged: y = x W^T + b, x [rows, in], W [out, in]. Base class
    of the other layouts. kernel: name of the layout, for display."""

    kernel = "plain"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        return residual + F.linear(x, self.weight, self.bias)


class TransposedLinear(PlainLinear):
    """Linear layer with W stored as [in, out], which row-major kernels read sequentially."""

    kernel = "transposed"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight.t().contiguous(), bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        y = torch.addmm(residual, x, self.weight)
        return y if self.bias is None else y.add_(self.bias)


class TwoLayouts:
    """A linear layer with its matrix in two layouts: ``few`` for fewer than MANY rows, ``many`` for MANY
    rows or more."""

    def __init__(self, few, many):
        self.few, self.many = few, many

    def __call__(self, x: Tensor) -> Tensor:
        return self.few(x) if x.shape[0] < MANY else self.many(x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        return self.few.add(x, residual) if x.shape[0] < MANY else self.many.add(x, residual)


class Layout:
    """The weight layouts chosen for a model's matrices: ``layout(weight, bias)`` returns a linear layer.
    kernel: names of the layouts, for display.

    kinds: {shape of the matrix [out, in]: (layout for few rows, for many rows)}; other shapes use
    PlainLinear.
    """

    def __init__(self, kinds: dict[tuple[int, ...], tuple[type, type]] | None = None):
        self._kinds = kinds or {}
        used = [kind.kernel for pair in self._kinds.values() for kind in pair]
        self.kernel = " and ".join(dict.fromkeys(used or [PlainLinear.kernel]))

    def __call__(self, weight: Tensor, bias: Tensor | None = None):
        pair = self._kinds.get(tuple(weight.shape), (PlainLinear, PlainLinear))
        few, many = pair
        return few(weight, bias) if many is few else TwoLayouts(few(weight, bias), many(weight, bias))


@contextmanager
def without_timing() -> Iterator[None]:
    """Context manager: store all weights transposed, without timing. Layouts round differently, so results
    are only reproducible in another process if the layout is fixed."""
    before = _by_clock.set(False)
    try:
        yield
    finally:
        _by_clock.reset(before)


def fastest_layout(weights: list[Tensor], total: int, budget: float = 0.25) -> Layout:
    """Return the fastest layouts of these weights [out, in] for one row and for eight, by timing them; on a
    GPU plain ones.

    In a small model every shape gets its own layout, because large matrices are bound by memory and small
    ones by call overhead. In a larger model all matrices are bound by memory and are timed together;
    choosing matrix by matrix was slower. total: bytes of all weights of the model, of which these are a
    sample; a very large one gets a single layout. budget: seconds for timing, less for a very small model.
    """
    if weights[0].device.type != "cpu" or weights[0].dtype != torch.float32:
        return Layout()
    if not _by_clock.get():
        return Layout({tuple(weight.shape): (TransposedLinear, TransposedLinear) for weight in weights})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # per-thread CPU time is only meaningful for a single thread
    try:
        measured = _measure(weights, budget * min(1.0, total / LITTLE))
    finally:
        torch.set_num_threads(threads)
    whole = {
        kind: {rows: sum(seconds[kind][rows] for seconds in measured.values()) for rows in ROWS}
        for kind in next(iter(measured.values()))
    }
    return Layout(
        {shape: _pair(seconds if total <= NEAR else whole, total) for shape, seconds in measured.items()}
    )


def _pair(seconds: dict[type, dict[int, float]], total: int) -> tuple[type, type]:
    """Return the layouts for few rows and for many, from measured seconds."""
    seconds = {
        kind: {rows: max(spent, TICK) for rows, spent in times.items()} for kind, times in seconds.items()
    }
    few, many = (min(seconds, key=lambda kind: seconds[kind][rows]) for rows in ROWS)
    slower = {
        kind: sum(times[rows] / seconds[best][rows] for rows, best in zip(ROWS, (few, many))) / 2
        for kind, times in seconds.items()
    }
    one = min(slower, key=slower.__getitem__)
    return (few, many) if slower[one] > WORTH and total <= TWICE else (one, one)


@torch.inference_mode()
def _measure(weights: list[Tensor], budget: float) -> dict[tuple[int, ...], dict[type, dict[int, float]]]:
    """Time every layout; seconds by shape, layout and number of rows.

    Interleaved, and the minimum of several, since load only ever adds time. The weights run one after
    another, as in a forward pass.
    """
    kinds = [kind for kind in (PlainLinear, TransposedLinear) if _agrees(kind, weights)]
    stacks = {kind: [kind(w) for w in weights] for kind in kinds}
    least = {(kind, rows): [float("inf")] * len(weights) for kind in kinds for rows in ROWS}
    inputs = {rows: [torch.ones(rows, w.shape[1]) for w in weights] for rows in ROWS}
    end, rounds = time.perf_counter() + budget, 0
    while (
        rounds < 5 or time.perf_counter() < end and rounds < MOST_ROUNDS
    ):  # load comes in bursts of tenths of a second
        rounds += 1
        for (kind, rows), found in least.items():
            stacks[kind][-1](inputs[rows][-1])  # not timed: in a run the layer before has this layout, too
            for i, (layer, x) in enumerate(zip(stacks[kind], inputs[rows])):
                began = time.thread_time()  # not wall time, which includes other processes
                layer(x)
                found[i] = min(found[i], time.thread_time() - began)
    alike: dict[tuple[int, ...], list[int]] = {}
    for i, weight in enumerate(weights):
        alike.setdefault(tuple(weight.shape), []).append(i)
    return {
        shape: {kind: {rows: sum(least[kind, rows][i] for i in places) for rows in ROWS} for kind in kinds}
        for shape, places in alike.items()
    }


@torch.inference_mode()
def _agrees(kind: type, weights: list[Tensor]) -> bool:
    """Return whether the layout works here and agrees with F.linear, with and without the residual."""
    weight = weights[0]
    generator, bias = torch.Generator().manual_seed(0), weight[:, 0].clone()
    try:
        layer = kind(weight, bias)
        for rows in (1, 2, ROWS[-1]):
            x, more = (
                torch.randn(rows, width, generator=generator) for width in (weight.shape[1], weight.shape[0])
            )
            want = F.linear(x, weight, bias)
            slack = 1e-5 * (float(want.abs().max()) + 1)
            if (
                not float((layer(x) - want).abs().max()) <= slack
                or not float((layer.add(x, more) - more - want).abs().max()) <= slack
            ):
                return False
    except (AttributeError, RuntimeError, NotImplementedError):  # this torch or processor lacks the op
        return False
    return True
