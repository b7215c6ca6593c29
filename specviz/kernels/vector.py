"""Numba intrinsics for the compiled forward pass: vectors of 16 floats, tiles of int8 products, attention
scores, and what threads need. Written as LLVM IR.

An address is an int64. A vector always has 16 floats; LLVM splits it for narrower processors. No operation
is fast-math, so sums are computed in the written order and results have the same bits on every processor
that has fused multiply-add.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

WIDTH = 16  # floats of a vector
F32 = ir.FloatType()
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
FLOATS = ir.VectorType(F32, WIDTH)
INTS = ir.VectorType(I32, WIDTH)
BYTES = ir.VectorType(I8, 4 * WIDTH)
POINTER = ir.PointerType()
INSTRUCTION_SETS = ("amx", "vnni512", "vnni256", "sdot", "avx2", "plain")
TO_INTEGER = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which the low bits of the sum hold
INTEGER_BITS = 0x4B400000  # the bits of TO_INTEGER
LEAST_POWER = -100.0  # powers of two below this count as 0, because sums of subnormals are slow
# 2^x for |x| <= 1/2, a polynomial from the highest power down
POW2 = (
    1.535336188319500e-4,
    1.339887440266574e-3,
    9.618437357674640e-3,
    5.550332471162809e-2,
    2.402264791363012e-1,
    6.931472028550421e-1,
    1.0,
)


class FloatVector(types.Type):
    """Numba type of a vector of 16 floats."""

    def __init__(self):
        super().__init__(name="float32x16")


vector = FloatVector()


@register_model(FloatVector)
class FloatVectorModel(models.PrimitiveModel):
    """Numba data model of a vector of 16 floats."""

    def __init__(self, manager: Any, fe_type: Any):
        super().__init__(manager, fe_type, FLOATS)


def _is_arm() -> bool:
    return llvm.get_default_triple().startswith(("aarch64", "arm64"))


def _is_x86() -> bool:
    return llvm.get_default_triple().startswith(("x86", "amd64", "i686"))


@lru_cache(maxsize=1)
def _tiles_allowed() -> bool:
    """Ask Linux to let this process use AMX's tile registers, as it must before their first use."""
    if not sys.platform.startswith("linux"):
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


def available_instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets of INSTRUCTION_SETS that this processor has, the fastest first."""
    has = llvm.get_host_cpu_features()
    wide = has.get("avx512vnni") and has.get("avx512vl")
    found = {
        "amx": wide and has.get("amx-int8") and has.get("amx-tile") and _tiles_allowed(),
        "vnni512": wide,
        "vnni256": has.get("avxvnni") or has.get("avx512vnni") and has.get("avx512vl"),
        "sdot": has.get("dotprod") or llvm.get_default_triple().startswith("arm64-apple"),
        "avx2": has.get("avx2") and has.get("fma"),
        "plain": True,
    }
    return tuple(name for name in INSTRUCTION_SETS if found[name])


def chosen_instruction_set() -> str:
    """Return the instruction set of the int8 products: the fastest that this processor has, or the one that
    SPECVIZ_KERNEL_ISA names, if it has that."""
    available = available_instruction_sets()
    asked = os.environ.get("SPECVIZ_KERNEL_ISA", "")
    return asked if asked in available else available[0]


ISA = chosen_instruction_set()
# Added to a packed weight, because x86 multiplies unsigned by signed bytes.
WEIGHT_OFFSET = 0 if ISA == "sdot" else 128
AMX = ISA == "amx"  # tile registers multiply many rows, vectors a few
WIDE = ISA in ("amx", "vnni512")  # a vector is one of 32 registers, so that large tiles stay in registers
# Rows of a tile of 16 outputs whose sums stay in registers, where vectors take several.
NARROW_ROWS = {"amx": 8, "vnni512": 8, "vnni256": 6, "sdot": 6, "avx2": 6, "plain": 2}[ISA]
# Outputs whose weights lie side by side: of a whole block in wide tiles, of one tile otherwise.
TILE_OUTPUTS = 8 if ISA == "avx2" else 16
# Bytes of a quantised activation: AVX2 multiplies 16-bit integers, which are stored so.
INPUT_BYTES = 2 if ISA == "avx2" else 1


# --- building blocks --------------------------------------------------------------------------------------------
def _pointer(b: Any, address: Any, offset: int = 0) -> Any:
    return b.inttoptr(b.add(address, ir.Constant(I64, offset)) if offset else address, POINTER)


def _load(b: Any, kind: Any, address: Any, align: int, offset: int = 0) -> Any:
    value = b.load(_pointer(b, address, offset), typ=kind)
    value.align = align
    return value


def _store(b: Any, value: Any, address: Any, align: int, offset: int = 0) -> None:
    b.store(value, _pointer(b, address, offset)).align = align


def _call(b: Any, name: str, result: Any, *args: Any) -> Any:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), args)


def _constant(kind: Any, value: float) -> Any:
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)
    return ir.Constant(kind, value)


def _shuffle(b: Any, v: Any, order: Sequence[int], other: Any = None) -> Any:
    indices = ir.Constant(ir.VectorType(I32, len(order)), [ir.Constant(I32, i) for i in order])
    return b.shuffle_vector(v, v if other is None else other, indices)


def _splat(b: Any, value: Any, count: int = WIDTH) -> Any:
    kind = ir.VectorType(value.type, count)
    one = b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return _shuffle(b, one, [0] * count)


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return _call(b, "llvm.fma.v16f32", FLOATS, x, y, z)


def _larger(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _reduce(b: Any, v: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine the lanes of a vector, halves first: always in the same order."""
    for half in (8, 4, 2, 1):
        v = combine(_shuffle(b, v, range(half)), _shuffle(b, v, range(half, 2 * half)))
    return b.extract_element(v, ir.Constant(I32, 0))


def _loop(b: Any, count: Any, carried: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]) -> Any:
    """Run ``body(i, values) -> values`` for i in 0..count, at least once; return the last values."""
    before = b.block
    head = b.append_basic_block("loop")
    end = b.append_basic_block("done")
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(ir.Constant(I64, 0), before)
    phis = []
    for value in carried:
        phi = b.phi(value.type)
        phi.add_incoming(value, before)
        phis.append(phi)
    new = body(i, phis)
    after = b.add(i, ir.Constant(I64, 1))
    i.add_incoming(after, b.block)
    for phi, value in zip(phis, new):
        phi.add_incoming(value, b.block)
    b.cbranch(b.icmp_signed("<", after, count), head, end)
    b.position_at_end(end)
    return new


def _operation(result: Any, *params: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function (builder, *values) -> value as a numba intrinsic with fixed types."""

    def decorate(generate: Callable[..., Any]) -> Any:
        def typed(typing_context: Any, *args: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                cast = [
                    context.cast(builder, value, given, wanted) if given != wanted else value
                    for value, given, wanted in zip(values, signature.args, params)
                ]
                made = generate(builder, *cast)
                return context.get_dummy_value() if result == types.void else made

            return result(*params), codegen

        return intrinsic(_with_arguments(typed, len(params), generate))

    return decorate


def _with_arguments(typed: Any, count: int, generate: Any) -> Any:
    """Return ``typed`` as a function of exactly ``count`` arguments, which numba reads from its signature."""
    made = {
        0: lambda typingctx: typed(typingctx),
        1: lambda typingctx, a: typed(typingctx, a),
        2: lambda typingctx, a, b: typed(typingctx, a, b),
        3: lambda typingctx, a, b, c: typed(typingctx, a, b, c),
        4: lambda typingctx, a, b, c, d: typed(typingctx, a, b, c, d),
        5: lambda typingctx, a, b, c, d, e: typed(typingctx, a, b, c, d, e),
        6: lambda typingctx, a, b, c, d, e, f: typed(typingctx, a, b, c, d, e, f),
        7: lambda typingctx, a, b, c, d, e, f, g: typed(typingctx, a, b, c, d, e, f, g),
    }[count]
    made.__name__ = generate.__name__
    made.__qualname__ = generate.__name__
    made.__doc__ = generate.__doc__
    return made


ADDRESS = types.int64
FLOAT = types.float32
INT = types.int32
NOTHING = types.void


# --- vectors ----------------------------------------------------------------------------------------------------
@_operation(vector, ADDRESS)
def load(b, address):
    """Return the 16 floats at an address."""
    return _load(b, FLOATS, address, 4)


@_operation(NOTHING, ADDRESS, vector)
def store(b, address, v):
    """Store 16 floats at an address."""
    _store(b, v, address, 4)


@_operation(vector, ADDRESS)
def load_half(b, address):
    """Return 16 float16 values as floats."""
    return b.fpext(_load(b, ir.VectorType(ir.HalfType(), WIDTH), address, 2), FLOATS)


@_operation(vector, ADDRESS, INT)
def load_sums(b, address, offset):
    """Return 16 int32 sums minus ``offset``, as floats."""
    return b.sitofp(b.sub(_load(b, INTS, address, 4), _splat(b, offset)), FLOATS)


@_operation(vector, ADDRESS, ADDRESS, INT, INT)
def load_sums_16(b, coarse, fine, parts, offset):
    """Return 16 int32 sums of a coarse part times ``parts`` plus those of a fine part minus ``offset``, as
    floats."""
    whole = b.mul(_load(b, INTS, coarse, 4), _splat(b, parts))
    return b.sitofp(b.sub(b.add(whole, _load(b, INTS, fine, 4)), _splat(b, offset)), FLOATS)


@_operation(vector, FLOAT)
def splat(b, x):
    """Return a vector with x in every lane."""
    return _splat(b, x)


@_operation(vector, vector, vector)
def add(b, x, y):
    """Return x + y."""
    return b.fadd(x, y)


@_operation(vector, vector, vector)
def sub(b, x, y):
    """Return x - y."""
    return b.fsub(x, y)


@_operation(vector, vector, vector)
def mul(b, x, y):
    """Return x y."""
    return b.fmul(x, y)


@_operation(vector, vector, vector)
def div(b, x, y):
    """Return x / y."""
    return b.fdiv(x, y)


@_operation(vector, vector, vector)
def larger(b, x, y):
    """Return the larger value of each lane."""
    return _larger(b, x, y)


@_operation(vector, vector, vector, vector)
def fma(b, x, y, z):
    """Return x y + z, rounded once."""
    return _fma(b, x, y, z)


@_operation(vector, vector)
def magnitude(b, x):
    """Return |x|."""
    return _call(b, "llvm.fabs.v16f32", FLOATS, x)


@_operation(vector, vector)
def swap_pairs(b, x):
    """Exchange neighbouring lanes."""
    return _shuffle(b, x, [i ^ 1 for i in range(WIDTH)])


@_operation(FLOAT, vector)
def total(b, v):
    """Return the sum of the lanes, always in the same order."""
    return _reduce(b, v, b.fadd)


@_operation(FLOAT, vector)
def largest(b, v):
    """Return the largest lane."""
    return _reduce(b, v, lambda x, y: _larger(b, x, y))


@_operation(vector, vector)
def rounded(b, x):
    """Return x rounded to integers, ties to even, for |x| < 2^22."""
    return b.fsub(b.fadd(x, _constant(FLOATS, TO_INTEGER)), _constant(FLOATS, TO_INTEGER))


@_operation(NOTHING, ADDRESS, vector)
def store_bytes(b, address, x):
    """Store 16 values, rounded as by ``rounded``, as int8 (INPUT_BYTES bytes each)."""
    bits = b.bitcast(b.fadd(x, _constant(FLOATS, TO_INTEGER)), INTS)
    kind = ir.VectorType(ir.IntType(8 * INPUT_BYTES), WIDTH)
    _store(b, b.trunc(b.sub(bits, _constant(INTS, INTEGER_BITS)), kind), address, 1)


@_operation(vector, vector)
def pow2(b, x):
    """Return 2^x for x clamped to -126..126, by a polynomial, within 2 units in the last place."""
    x = _larger(b, x, _constant(FLOATS, -126.0))
    x = b.select(b.fcmp_ordered("<", x, _constant(FLOATS, 126.0)), x, _constant(FLOATS, 126.0))
    shifted = b.fadd(x, _constant(FLOATS, TO_INTEGER))
    power = b.sub(b.bitcast(shifted, INTS), _constant(INTS, INTEGER_BITS))
    rest = b.fsub(x, b.fsub(shifted, _constant(FLOATS, TO_INTEGER)))
    y = _constant(FLOATS, POW2[0])
    for coefficient in POW2[1:]:
        y = _fma(b, y, rest, _constant(FLOATS, coefficient))
    return b.bitcast(b.add(b.bitcast(y, INTS), b.shl(power, _constant(INTS, 23))), FLOATS)


@_operation(vector, vector)
def softmax_power(b, x):
    """Return 0, for the lanes of x below LEAST_POWER, or 1: a factor of ``pow2``."""
    far = b.fcmp_ordered("<", x, _constant(FLOATS, LEAST_POWER))
    return b.select(far, _constant(FLOATS, 0.0), _constant(FLOATS, 1.0))


@_operation(INT, vector, FLOAT)
def lanes_above(b, x, y):
    """Return an integer with bit i set if lane i of x is greater than y."""
    bits = b.bitcast(b.fcmp_ordered(">", x, _splat(b, y)), ir.IntType(WIDTH))
    return b.zext(bits, I32)


# --- scalars ----------------------------------------------------------------------------------------------------
@_operation(FLOAT, ADDRESS)
def load_float(b, address):
    """Return the float at an address."""
    return _load(b, F32, address, 4)


@_operation(NOTHING, ADDRESS, FLOAT)
def store_float(b, address, value):
    """Store a float."""
    _store(b, value, address, 4)


@_operation(types.float64, ADDRESS)
def load_double(b, address):
    """Return the float64 at an address."""
    return _load(b, ir.DoubleType(), address, 8)


@_operation(INT, ADDRESS)
def load_int(b, address):
    """Return the int32 at an address."""
    return _load(b, I32, address, 4)


@_operation(NOTHING, ADDRESS, INT)
def store_int(b, address, value):
    """Store an int32."""
    _store(b, value, address, 4)


@_operation(ADDRESS, ADDRESS)
def load_long(b, address):
    """Return the int64 at an address."""
    return _load(b, I64, address, 8)


@_operation(NOTHING, ADDRESS, ADDRESS)
def store_long(b, address, value):
    """Store an int64."""
    _store(b, value, address, 8)


# --- threads ----------------------------------------------------------------------------------------------------
@_operation(ADDRESS, ADDRESS)
def load_acquire(b, address):
    """Return the int64 at an address; later reads see what the thread that stored it wrote before."""
    return b.load_atomic(b.inttoptr(address, POINTER), "acquire", 8, typ=I64)


@_operation(NOTHING, ADDRESS, ADDRESS)
def store_release(b, address, value):
    """Store an int64 after all earlier writes."""
    # builder.store_atomic of llvmlite 0.50 asks for a typed pointer, which LLVM no longer has.
    b._insert(ir.instructions.StoreAtomicInstr(b.block, value, _pointer(b, address), "release", 8))


@_operation(NOTHING)
def pause(b):
    """Tell the processor that this thread waits."""
    if _is_x86():
        _call(b, "llvm.x86.sse2.pause", ir.VoidType())
    elif _is_arm():
        _call(b, "llvm.aarch64.hint", ir.VoidType(), ir.Constant(I32, 1))


@_operation(NOTHING)
def give_way(b):
    """Let another thread run on this core."""
    _call(b, "SwitchToThread" if os.name == "nt" else "sched_yield", I32)


@_operation(NOTHING, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS)
def call_product(b, function, *args):
    """Call a compiled function of six int64 by its address, so that it is compiled once and not in each of
    its callers."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * 6)
    b.call(b.inttoptr(function, kind.as_pointer()), args)


# --- int8 products ----------------------------------------------------------------------------------------------
def _parts(b: Any, v: Any, count: int) -> list[Any]:
    size = v.type.count // count
    return [_shuffle(b, v, range(i * size, (i + 1) * size)) for i in range(count)]


def _dot4(b: Any, sums: list[Any], weights: Any, x: Any, isa: str) -> list[Any]:
    """Add to 16 int32 sums the products of 64 packed weights, four for each sum, and four int8 values x, as
    one int32."""
    if isa in ("amx", "vnni512"):
        y = b.bitcast(_splat(b, x), BYTES)
        return [_call(b, "llvm.x86.avx512.vpdpbusd.512", INTS, sums[0], weights, y)]
    if isa == "vnni256":
        y = b.bitcast(_splat(b, x, 8), ir.VectorType(I8, 32))
        half = ir.VectorType(I32, 8)
        name = "llvm.x86.avx512.vpdpbusd.256"
        return [_call(b, name, half, one, part, y) for one, part in zip(sums, _parts(b, weights, 2))]
    if isa == "sdot":
        y = b.bitcast(_splat(b, x, 4), ir.VectorType(I8, 16))
        quarter = ir.VectorType(I32, 4)
        name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
        return [_call(b, name, quarter, one, part, y) for one, part in zip(sums, _parts(b, weights, 4))]
    if isa == "avx2":  # vpmaddwd, because vpmaddubsw saturates
        y = b.bitcast(_splat(b, x, 4), ir.VectorType(I16, 16))
        half = ir.VectorType(I32, 8)
        out = []
        for one, part in zip(sums, _parts(b, weights, len(sums))):
            wide = b.zext(part, ir.VectorType(I16, 16))
            out.append(b.add(one, _call(b, "llvm.x86.avx2.pmadd.wd", half, wide, y)))
        return out
    y = b.sext(b.bitcast(_splat(b, x), BYTES), ir.VectorType(I32, 64))
    products = b.mul(b.zext(weights, ir.VectorType(I32, 64)), y)
    first, second, third, fourth = (_shuffle(b, products, range(i, 64, 4)) for i in range(4))
    return [b.add(sums[0], b.add(b.add(first, second), b.add(third, fourth)))]


def _zero_sums(isa: str) -> list[Any]:
    parts = {"vnni256": (2, 8), "sdot": (4, 4), "avx2": (4, 8)}
    count, lanes = parts.get(isa, (1, 16))
    return [_constant(ir.VectorType(I32, lanes), 0)] * count


def _whole_sums(b: Any, sums: list[Any], isa: str) -> list[Any]:
    """Return the 16 sums in order; of AVX2, two lanes hold parts of each."""
    if isa != "avx2":
        return sums
    return [b.add(_shuffle(b, v, range(0, 8, 2)), _shuffle(b, v, range(1, 8, 2))) for v in sums]


def _prefetch(b: Any, address: Any, offset: int) -> None:
    hints = [ir.Constant(I32, hint) for hint in (0, 3, 1)]  # read, keep in every cache, data
    _call(b, "llvm.prefetch.p0", ir.VoidType(), _pointer(b, address, offset), *hints)


def make_tile(rows: int, columns: int, half: bool = False, isa: str = ISA) -> Any:
    """Return the intrinsic ``tile(w, x, stride, steps, out, out_stride, soon)``: products of ``rows`` rows of
    bytes at x, ``stride`` bytes apart, with 16 columns outputs, whose weights [steps, columns, 16, 4] lie
    at w. Sums, int32, go to out, rows ``out_stride`` bytes apart. soon: address of weights to prefetch, as
    many as are read. half: of AVX2, 8 outputs instead of 16, whose sums take half of the registers."""
    zeros = _zero_sums(isa)[: 2 if half else None]
    parts = len(zeros)
    size = 32 if half else 64  # bytes of the weights of a step and of a column
    number = ir.IntType(32 * INPUT_BYTES)

    def tile(b, w, x, stride, steps, out, out_stride, soon):
        starts = [x]
        for _ in range(rows - 1):
            starts.append(b.add(starts[-1], stride))

        def body(i: Any, values: list[Any]) -> list[Any]:
            passed = b.mul(i, ir.Constant(I64, size * columns))
            at_w = b.add(w, passed)
            at_soon = b.add(soon, passed)
            for c in range(columns):
                _prefetch(b, at_soon, 64 * c)
            kind = ir.VectorType(I8, size)
            weights = [_load(b, kind, at_w, size, 64 * c) for c in range(columns)]
            at_x = b.mul(i, ir.Constant(I64, 4 * INPUT_BYTES))
            out: list[Any] = []
            for r in range(rows):
                value = _load(b, number, b.add(starts[r], at_x), 4)
                for c in range(columns):
                    first = (r * columns + c) * parts
                    out += _dot4(b, values[first : first + parts], weights[c], value, isa)
            return out

        sums = _loop(b, steps, zeros * (rows * columns), body)
        for r in range(rows):
            row = b.add(out, b.mul(ir.Constant(I64, r), out_stride))
            offset = 0
            for c in range(columns):
                first = (r * columns + c) * parts
                for v in _whole_sums(b, sums[first : first + parts], isa):
                    _store(b, v, row, 4, offset)
                    offset += 4 * v.type.count

    tile.__name__ = f"tile_{rows}_{columns}"
    return _operation(NOTHING, *[ADDRESS] * 7)(tile)


TILE_ROWS = 16  # rows of a tile register, of 64 bytes each


def make_amx(columns: int) -> Any:
    """Return the intrinsic ``amx(w, x, stride, steps, rows, out, soon)``: the sums of ``make_tile`` for 1 to
    TILE_ROWS rows by tile registers, with nothing between rows of ``out``; steps: at least 16.

    Registers from 0: sums of each column, inputs, weights, then inputs and weights of the steps that are left
    over when 16 are multiplied at a time.
    """
    inputs, weights, last_inputs, last_weights = range(columns, columns + 4)

    def tile_call(b, name, *args):
        given = [ir.Constant(I8, arg) if isinstance(arg, int) else arg for arg in args]
        _call(b, f"llvm.x86.{name}", ir.VoidType(), *given)

    def amx(b, w, x, stride, steps, rows, out, soon):
        if not AMX:
            return  # never called, and other processors have no such instructions
        left = b.and_(steps, ir.Constant(I64, TILE_ROWS - 1))
        one = ir.Constant(I64, 1)
        some = b.select(b.icmp_signed(">", left, one), left, one)
        settings = cgutils.alloca_once(b, ir.ArrayType(I8, 64))
        base = b.ptrtoint(settings, I64)
        _store(b, _constant(BYTES, 0), base, 1)
        _store(b, ir.Constant(I8, 1), base, 1)
        full = ir.Constant(I64, 64)
        sizes = dict.fromkeys(range(columns), (full, rows))
        sizes |= {inputs: (full, rows), weights: (full, ir.Constant(I64, TILE_ROWS))}
        sizes |= {last_inputs: (b.mul(some, ir.Constant(I64, 4)), rows), last_weights: (full, some)}
        for register, (wide, high) in sizes.items():
            _store(b, b.trunc(wide, I16), base, 1, 16 + 2 * register)
            _store(b, b.trunc(high, I8), base, 1, 48 + register)
        tile_call(b, "ldtilecfg", settings)  # also sets all registers to 0
        pitch = ir.Constant(I64, 64 * columns)

        def multiply(at_x, at_w, x_tile, w_tile):
            tile_call(b, "tileloadd64", x_tile, _pointer(b, at_x), stride)
            for c in range(columns):
                tile_call(b, "tileloadd64", w_tile, _pointer(b, at_w, 64 * c), pitch)
                tile_call(b, "tdpbsud", c, x_tile, w_tile)

        def body(i: Any, values: list[Any]) -> list[Any]:
            at_x = b.add(x, b.mul(i, full))
            at_w = b.add(w, b.mul(i, ir.Constant(I64, TILE_ROWS * 64 * columns)))
            at_soon = b.add(soon, b.mul(i, ir.Constant(I64, TILE_ROWS * 64 * columns)))
            for line in range(TILE_ROWS * columns):
                _prefetch(b, at_soon, 64 * line)
            multiply(at_x, at_w, inputs, weights)
            return []

        whole = b.ashr(steps, ir.Constant(I64, 4))
        _loop(b, whole, [], body)
        with b.if_then(b.icmp_signed("!=", left, ir.Constant(I64, 0))):
            at_x = b.add(x, b.mul(whole, full))
            at_w = b.add(w, b.mul(whole, ir.Constant(I64, TILE_ROWS * 64 * columns)))
            multiply(at_x, at_w, last_inputs, last_weights)
        for c in range(columns):
            tile_call(b, "tilestored64", c, _pointer(b, out, 64 * c), pitch)
        tile_call(b, "tilerelease")

    amx.__name__ = f"amx_{columns}"
    return _operation(NOTHING, *[ADDRESS] * 7)(amx)


# --- attention --------------------------------------------------------------------------------------------------
def _lane_sums(b: Any, sums: list[Any]) -> Any:
    """Return the sums over the lanes of 16 vectors, as one vector in order. All 16 add in the same order:
    lanes 8 apart, then 4, 2 and 1 apart."""
    for half in (8, 4, 2, 1):
        low = [i // half * 2 * half + i % half for i in range(8)]
        first = low + [WIDTH + i for i in low]
        second = [i + half for i in first]
        # Vector i of a pair keeps its sums in half of the lanes.
        sums = [
            b.fadd(_shuffle(b, x, first, y), _shuffle(b, x, second, y)) for x, y in zip(sums[::2], sums[1::2])
        ]
    return sums[0]


@_operation(NOTHING, ADDRESS, ADDRESS, ADDRESS, ADDRESS)
def score_16(b, q, keys, chunks, out):
    """Store q . k of one query and 16 consecutive keys, each of 16 chunks floats. Each is a chain of fused
    multiply-adds in 16 lanes, summed in a fixed order, so it does not depend on the key's place."""
    size = b.mul(chunks, ir.Constant(I64, 4 * WIDTH))
    rows: list[Any] = []
    for lane in range(WIDTH):
        rows.append(b.add(keys, b.mul(size, ir.Constant(I64, lane))))

    found: list[Any] = []
    each = WIDTH if WIDE else 4  # keys whose sums stay in registers
    for first in range(0, WIDTH, each):
        mine = rows[first : first + each]

        def body(i: Any, sums: list[Any], mine: list[Any] = mine) -> list[Any]:
            at = b.mul(i, ir.Constant(I64, 4 * WIDTH))
            query = _load(b, FLOATS, b.add(q, at), 4)
            return [_fma(b, query, _load(b, FLOATS, b.add(row, at), 4), one) for row, one in zip(mine, sums)]

        found += _loop(b, chunks, [_constant(FLOATS, 0.0)] * each, body)
    _store(b, _lane_sums(b, found), out, 4)


def make_weighted(heads: int, vectors: int) -> Any:
    """Return the intrinsic ``weighted(p, stride, v, row, count, sums, size)``: add p[i] v[i] of ``count``
    consecutive rows of values, in order, to the sums of ``heads`` heads, of 16 vectors columns.

    Weights of the heads are ``stride`` bytes apart, rows of values ``row`` bytes, sums ``size`` bytes.
    """

    def weighted(b, p, stride, v, row, count, sums, size):
        at_sums = [b.add(sums, b.mul(size, ir.Constant(I64, h))) for h in range(heads)]
        first = [_load(b, FLOATS, at, 4, 64 * j) for at in at_sums for j in range(vectors)]

        def body(i: Any, held: list[Any]) -> list[Any]:
            at_p = b.add(p, b.mul(i, ir.Constant(I64, 4)))
            at_v = b.add(v, b.mul(i, row))
            values = [_load(b, FLOATS, at_v, 4, 64 * j) for j in range(vectors)]
            out: list[Any] = []
            for h in range(heads):
                place = b.add(at_p, b.mul(stride, ir.Constant(I64, h)))
                weight = _splat(b, _load(b, F32, place, 4))
                out += [_fma(b, weight, value, held[h * vectors + j]) for j, value in enumerate(values)]
            return out

        for i, value in enumerate(_loop(b, count, first, body)):
            _store(b, value, at_sums[i // vectors], 4, 64 * (i % vectors))

    weighted.__name__ = f"weighted_{heads}_{vectors}"
    return _operation(NOTHING, *[ADDRESS] * 7)(weighted)
