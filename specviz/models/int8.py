"""Int8 linear layers: weights and activations in int8 (W8A8, as in LLM.int8() 2208.07339 and SmoothQuant
2211.10438). There is one scale per weight row and one per activation row (dynamic, per token): the row's
largest magnitude divided by 127.

Integer products are summed exactly in any order, so results are bit-identical regardless of batch
composition. This makes a low-precision pass usable for verification (bfloat16 is not:
docs/log/2026-11/speed.md). On a processor with int8 dot products (VNNI), eight rows cost 1.5 times one.
Elsewhere the same integers are multiplied as floats, which are exact up to 2^24.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn

from .fallbacks import log_fallback
from .linear import Layout, PlainLinear
from .torchscript import HalfProducts, scripted

MOST = 127  # the largest integer magnitude
FINE = 128  # steps of the remainder in a coarse step; a power of two, so that its products are exact
LEAST = 1e-30  # lower bound of a row's maximum, so that a row of zeros has a step
WIDTH = (2**24 - 1) // MOST**2  # largest number of products whose sum float32 holds exactly


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise a matrix per row: return int8 values [out, in] from -127 to 127 and float32 scales [out],
    with weight = values * scales approximately."""
    scales = weight.abs().amax(1).clamp_min(LEAST).float() / MOST
    return torch.round(weight / scales[:, None]).to(torch.int8), scales


class Int8Kernel(nn.Module):
    """Base class (nn.Module) of int8 linear layers: y = x W^T + b, x [rows, in]. Weights are int8 with one
    scale per output row (``values``, ``scales`` from ``quantise_rows``); x is quantised per row.

    int16_input: quantise x to two int8 values, the second for the remainder times FINE (16 bits together);
    they are multiplied as twice as many rows that share one read of the weights.
    """

    bias: Tensor | None

    def __init__(self, values: Tensor, scales: Tensor, bias: Tensor | None, int16_input: bool = False):
        super().__init__()
        self.bias = bias
        self.most = torch.tensor(float(MOST))
        self.least = LEAST
        self.int16_input = int16_input
        self.fine_scale, self.fine_step = torch.tensor(float(FINE)), 1.0 / FINE

    def multiply(self, x: Tensor) -> Tensor:
        """Round x [rows, in], from -127 to 127, to integers; return the integer products x W^T [rows, out]
        times scales / 127."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b, [rows, out], with x [rows, in] quantised per row."""
        largest, bias = x.abs().amax([-1], True).clamp_min_(self.least), self.bias
        x = x.mul(self.most.div(largest))
        if self.int16_input:
            n, coarse = x.shape[0], x.round()
            y = self.multiply(torch.cat([coarse, x.sub_(coarse).mul_(self.fine_scale)]))
            y = torch.add(y.narrow(0, 0, n), y.narrow(0, n, n), alpha=self.fine_step).mul_(
                largest
            )  # the product is exact
        else:
            y = self.multiply(x).mul_(largest)
        return y if bias is None else y.add_(bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        return self.forward(x).add_(residual)


class VnniInt8Kernel(Int8Kernel):
    """Int8 products by the processor's int8 instructions (VNNI), through fbgemm."""

    def __init__(self, values: Tensor, scales: Tensor, bias: Tensor | None, int16_input: bool = False):
        super().__init__(values, scales, bias, int16_input)
        with warnings.catch_warnings(), _fbgemm():
            warnings.simplefilter("ignore")  # torch points to a successor that has no such product
            zeros = torch.zeros(len(scales), dtype=torch.long)
            make = torch._make_per_channel_quantized_tensor  # pyright: ignore[reportPrivateImportUsage] (there is no public one)
            weight = make(values.contiguous(), scales.double() / MOST, zeros, 0)
            self.packed, self.packed_bytes = torch.ops.quantized.linear_prepack(weight, None), values.numel()

    def multiply(self, x: Tensor) -> Tensor:
        """Return the products of rounded x, as Int8Kernel.multiply, by fbgemm's int8 kernel."""
        return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, 1.0, 128, self.packed)


class FloatInt8Kernel(Int8Kernel):
    """Int8 products multiplied as floats, over so few columns at a time that sums are exact. Raises
    NotImplementedError for rows that are too long."""

    def __init__(self, values: Tensor, scales: Tensor, bias: Tensor | None, int16_input: bool = False):
        super().__init__(values, scales, bias, int16_input)
        if values.shape[1] > 2 * WIDTH:
            raise NotImplementedError(f"{values.shape[1]} products in a row are more than two sums hold")
        self.scales = (scales.double() / MOST).float()
        self.width = min(WIDTH, values.shape[1])
        self.more = values.shape[1] > WIDTH
        self.first = _floats(values[:, : self.width])
        self.second = (
            _floats(values[:, self.width :]) if self.more else self.first
        )  # unused, but TorchScript compiles both branches

    def multiply(self, x: Tensor) -> Tensor:
        """Return the products of rounded x, as Int8Kernel.multiply, as one or two exact float sums."""
        x = x.add(128.0).round_().sub_(128.0)  # as bytes are made: a tie is one of the sum
        if not self.more:
            return self.first(x).mul_(self.scales)
        return (
            self.first(x[:, : self.width].contiguous())
            .add_(self.second(x[:, self.width :].contiguous()))
            .mul_(self.scales)
        )


def _floats(values: Tensor) -> nn.Module:
    """Return a module for x W^T with integer weights [out, in], stored as float16, which represents them,
    or as float32 if torch lacks that product."""
    try:
        with _fbgemm():
            return HalfProducts(
                torch.ops.quantized.linear_prepack_fp16(values.float().contiguous(), None), 2 * values.numel()
            )
    except RuntimeError:
        log_fallback("torch's 16-bit product", "32-bit floats are multiplied")
        plain = nn.Linear(values.shape[1], values.shape[0], bias=False)
        plain.weight = nn.Parameter(values.float(), requires_grad=False)
        return plain


@contextmanager
def _fbgemm() -> Iterator[None]:
    """Context in which torch packs quantised weights for fbgemm."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


class Int8Linear(PlainLinear):
    """An int8 linear layer (W8A8): y = x W^T + b, x [rows, in], by the faster of the two kinds of products
    on this processor. int16_input: see Int8Kernel."""

    kernel = "int8"

    def __init__(self, weight: Tensor, bias: Tensor | None = None, int16_input: bool = False):
        self.module = _kind()(*quantise_rows(weight), bias, int16_input)

    @cached_property
    def _run(self) -> Callable[[Tensor], Tensor]:
        """The layer compiled by itself; as a part of a compiled block it never is."""
        return scripted(self.module).forward

    def __call__(self, x: Tensor) -> Tensor:
        return self._run(x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        return self(x).add_(residual)


class Int8Layout(Layout):
    """Layout of a model whose matrices are all int8. Called with int16_input, it gives a layer that
    quantises its input to 16 bits."""

    def __init__(self):
        super().__init__()
        self.kernel = (
            Int8Linear.kernel if has_byte_products() else f"{Int8Linear.kernel}, multiplied as floats"
        )

    def __call__(self, weight: Tensor, bias: Tensor | None = None, int16_input: bool = False) -> Int8Linear:
        return Int8Linear(weight, bias, int16_input)


def has_byte_products() -> bool:
    """Return whether this processor has int8 dot products (VNNI), so that int8 is faster than 16 bits."""
    return _kind() is VnniInt8Kernel


@lru_cache(maxsize=1)
def _kind() -> type[Int8Kernel]:
    """Return ``VnniInt8Kernel`` if its sums are exact here (without VNNI they saturate at 16 bits), else
    ``FloatInt8Kernel``."""
    values = torch.full((64, 256), MOST, dtype=torch.int8)
    values[1::2] *= -1
    try:
        with torch.inference_mode():
            product = VnniInt8Kernel(values, torch.full((64,), float(MOST)), None).multiply(
                torch.full((3, 256), float(MOST))
            )
        return (
            VnniInt8Kernel
            if torch.equal(product, values.float().sum(1).mul(MOST).expand(3, -1))
            else FloatInt8Kernel
        )
    except (
        RuntimeError,
        AttributeError,
        NotImplementedError,
    ):  # another torch or processor: the op is not there
        return FloatInt8Kernel
