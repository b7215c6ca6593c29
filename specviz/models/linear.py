"""One linear layer, stored the way this processor multiplies fastest.

On a CPU a plain ``F.linear`` costs nearly twice as much for two rows as for one, which would make verification look dear. The
same weights stored transposed, or packed by oneDNN, take eight rows for little more than one. Which of them wins depends on
the processor, so it is measured when weights are loaded. oneDNN's ops are private to torch: they are named here and nowhere
else, and used only when they agree with ``F.linear``.
"""
from __future__ import annotations

import time

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = (1, 8)  # a plain step and a small tree


class PlainLinear:
    """y = x W^T + b, x [rows, in], W [out, in]. ``add`` returns residual + y."""

    kernel = "plain"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias, self.width = weight, bias, weight.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + F.linear(x, self.weight, self.bias)


class TransposedLinear:
    """The same with W stored as [in, out], which row-major kernels stream through."""

    kernel = "transposed"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias, self.width = weight.t().contiguous(), bias, weight.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        y = torch.addmm(residual, x, self.weight)
        return y if self.bias is None else y.add_(self.bias)


class PackedLinear:
    """The same in oneDNN's own blocked layout."""

    kernel = "onednn"

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS[-1])
        self.bias, self.width = bias, weight.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")


def fastest(weights: list[Tensor], repeats: int = 5) -> type:
    """The class that runs these weights [out, in] quickest at one row and at eight together; PlainLinear off the CPU."""
    if weights[0].device.type != "cpu" or weights[0].dtype != torch.float32:
        return PlainLinear
    inputs = {rows: [torch.randn(rows, w.shape[1], generator=torch.Generator().manual_seed(rows)) for w in weights] for rows in ROWS}
    with torch.inference_mode():
        layers = {kind: [kind(w) for w in weights] for kind in (PlainLinear, TransposedLinear, PackedLinear) if _agrees(kind, weights[0])}
        best = {kind: dict.fromkeys(ROWS, float("inf")) for kind in layers}
        for _ in range(repeats):  # interleaved, and the least of several: a busy machine only ever adds time
            for kind, stack in layers.items():
                for rows, xs in inputs.items():
                    began = time.perf_counter()
                    for layer, x in zip(stack, xs):
                        layer(x)
                    best[kind][rows] = min(best[kind][rows], time.perf_counter() - began)
    return min(best, key=lambda kind: sum(best[kind].values()))


def _agrees(kind: type, weight: Tensor) -> bool:
    """Whether the layout works here and gives F.linear's numbers, with and without the residual."""
    generator = torch.Generator().manual_seed(0)
    try:
        layer, bias = kind(weight, weight[:, 0].clone()), weight[:, 0]
        for rows in (1, 2, ROWS[-1]):
            x = torch.randn(rows, weight.shape[1], generator=generator)
            want, more = F.linear(x, weight, bias), torch.randn(rows, weight.shape[0], generator=generator)
            close = 1e-5 * float(want.abs().max()) + 1e-6
            if float((layer(x) - want).abs().max()) > close or float((layer.add(x, more) - more - want).abs().max()) > close + 1e-5:
                return False
    except (AttributeError, RuntimeError, NotImplementedError):  # another torch, another processor: the op is not there
        return False
    return True
